"""Two revisions of a kernels tree: the working tree, and another one.

Only kernels differ between revisions; the harness that measures them is the installed one. Both are
checked out into a temporary folder (`checkouts.py` beside this). The user's checkout and index are
never touched, and nothing is written into the user's repository.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bt_bench.base.errors import NotComparableError, UsageError
from bt_bench.protocol import DEFAULT_REF, SuiteRef, load_suite
from bt_bench.runs.gate.own_code import refuse_code_of
from bt_bench.runs.gate.revisions import (
    ask_git,
    changed_files,
    digest_of,
    top_of,
    tracked_files,
    tracked_root,
    untracked_code,
)
from bt_bench.variants import (
    REFERENCE,
    Isolation,
    VariantEntry,
    find_variants,
    installed_places,
    real_path,
)

CHECKOUT = "the checkout"  # the label of files that both revisions have been given copies of


@dataclass(frozen=True)
class Location:
    """The location of kernels within a repository.

    Args:
        top: folder of the working tree, where the user has it.
        kernels: folder that holds the suite's package of kernels, relative to `top`; `None` if the
            repository has none, so both sides use the installed one.
        folders: a user's folders of variants, relative to `top`.
        suite: the suite of these variants.
    """

    top: Path
    kernels: Path | None
    folders: tuple[Path, ...]
    suite: SuiteRef = DEFAULT_REF

    @property
    def package(self) -> str:
        """The suite's package of kernels."""
        return load_suite(self.suite).package

    @property
    def places(self) -> tuple[Path, ...]:
        """The folders of kernels and variants, relative to `top`."""
        return (*self.folders, *(() if self.kernels is None else (self.kernels,)))


@dataclass(frozen=True)
class Tree:
    """One revision on disk.

    Args:
        label: its name in reports.
        commit: the commit; for a working tree, the one that it is based on.
        dirty: whether tracked files differ from the commit.
        top: folder of the checkout.
        location: where kernels are in the checkout.
        changes: a digest of the tracked files that differ, and of untracked code among kernels and
            variants; `None`: there are none.
    """

    label: str
    commit: str
    dirty: bool
    top: Path
    location: Location
    changes: str | None = None

    def variants(self) -> dict[str, VariantEntry]:
        """Return all variants of this revision, by name.

        Raises:
            UsageError: if a folder is missing or leads out of the tree, naming both, or if the
                revision has kernels that the working tree lacks.
        """
        kernels = self.location.kernels
        for folder in self.location.places:
            if not (self.top / folder).is_dir():
                raise UsageError(
                    f"{self.label} has no folder {folder}; expected one in both revisions that git "
                    "does not ignore; choose another --base or another --kernels"
                )
            if not real_path(self.top / folder).is_relative_to(self.top):
                raise UsageError(
                    f"{self.label}: {folder} is a link that leads out of the tree; expected a "
                    "folder of each revision's own"
                )
        package = self.location.package
        theirs = tracked_root(self.top, package) if kernels is None else None
        if theirs is not None:
            raise UsageError(
                f"{self.label} has kernels of its own in {theirs}, which the working tree does not "
                "have; choose another --base"
            )
        root = None if kernels is None else self.top / kernels
        folders = [self.top / folder for folder in self.location.folders]
        return find_variants(folders, root, suite=load_suite(self.location.suite))

    def named(self, text: str) -> str:
        """Return a message with the tree's label in front and its paths relative to the top."""
        return f"{self.label}: " + text.replace(f"{self.top}{os.sep}", "")

    def at_home(self, text: str) -> str:
        """Return a message with paths of the user's checkout in place of this copy's."""
        return text.replace(str(self.top), str(self.location.top))


def measured_alike(
    base: Tree, head: Tree, names: Sequence[str], found: Sequence[Mapping[str, VariantEntry]]
) -> tuple[str, ...]:
    """Return facts about variants whose file is the same one in both revisions.

    Args:
        base: one revision.
        head: the other.
        names: names of the compared variants, which both have.
        found: the variants of base and head.

    Raises:
        NotComparableError: if that is so for all of them, since nothing could ever differ.
    """
    on_base, on_head = found
    alike = [n for n in names if real_path(on_base[n].path) == real_path(on_head[n].path)]
    if not alike:
        return ()
    where = real_path(on_head[alike[0]].path).parent
    files = f"the {'file' if len(alike) == 1 else 'files'} of {', '.join(alike)} in {where}"
    if len(alike) < len(names):
        return (f"Both revisions run {files}, so verdicts on them cannot show the change.",)
    own = [
        name
        for name, entry in on_head.items()
        if name not in alike and entry.path.is_relative_to(head.top) and name != REFERENCE
    ]
    raise NotComparableError(
        f"{base.label} and {head.label} both run {files}, so nothing could differ; name variants "
        "of the repository in the config's 'variants', or by --variants"
        + (f": it has {', '.join(own)}" if own else "")
    )


def locate(start: Path, folders: Sequence[Path] = (), suite: SuiteRef | None = None) -> Location:
    """Locate the repository and the kernels in it.

    Args:
        start: a folder in the repository, used if there are no `folders`.
        folders: as `--kernels` gives them; one that holds the suite's package is its root.
        suite: the suite of the kernels; a user's suite has them in its folder.

    Raises:
        UsageError: without git, outside a repository, and if no kernels are found.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(
                f"--kernels {folder}: no such folder; expected a folder of variant files"
            )
    suite = suite or SuiteRef()
    package = load_suite(suite).package
    seen = [*folders, *([] if suite.root is None else [suite.root])]
    top = top_of(seen[0] if seen else start)
    outer = None if not seen else _outer_top(start, top)
    if outer is not None:
        option = "--kernels" if folders else "--suite"
        raise UsageError(
            f"{option} {seen[0]}: is in {top}, a repository of its own within {outer}, such as a "
            "submodule; run the gate there, or track the folder in the outer one"
        )
    root, own = _told_apart([_place_in(folder, top) for folder in folders], top, package)
    if suite.root is not None:
        root = _place_in(suite.root, top, "--suite")
    root = root or tracked_root(top, package)
    if root is None and not own:
        raise UsageError(
            f"{top}: holds no kernels (no {package}/__init__.py that git tracks); pass --kernels "
            "DIR with a folder of variant files"
        )
    return Location(top, root, own, suite)


def location_in(base: Tree, head: Tree, folders: Sequence[Path], suite: SuiteRef) -> Location:
    """Locate the kernels of the base, as its own config and settings have them.

    The suite that drives both revisions remains the head's.

    Args:
        base: a checkout of the base.
        head: the working tree.
        folders: folders of variants, in the base's tree or in the checkout, as paths of flags are.
        suite: the suite in the base's config.

    Raises:
        UsageError: for a folder that is in neither tree.
    """
    location, package = head.location, head.location.package
    places = [
        place_below(folder, base.top) or _place_in(folder, location.top, f"{base.label}: kernels")
        for folder in folders
    ]
    root, own = _told_apart(places, base.top, package)
    if suite.root is not None and location.suite.folder is not None:
        root = place_below(suite.root, base.top) or _place_in(suite.root, location.top, "--suite")
    if location.kernels is None:
        root = None  # as installed; `Tree.variants` refuses a base that has kernels of its own
    else:
        root = root or tracked_root(base.top, package) or location.kernels
    return replace(location, kernels=root, folders=own)


def _told_apart(
    places: Sequence[Path], top: Path, package: str
) -> tuple[Path | None, tuple[Path, ...]]:
    """Return the root of the package of kernels, if any, and the folders of variants."""
    roots = [place for place in places if (top / place / package / "__init__.py").is_file()]
    own = tuple(place for place in places if place not in roots)
    return roots[-1] if roots else None, own


def _place_in(folder: Path, top: Path, what: str = "--kernels") -> Path:
    place = place_below(folder, top)
    if place is None:
        raise UsageError(
            f"{what} {folder}: is not in the repository {top}; a gate compares folders of one "
            "repository"
        )
    return place


def place_below(path: Path, top: Path) -> Path | None:
    """Return a path relative to the top of a tree; `None` if it is not in the tree.

    Links stay, since the other tree's may differ.
    """
    path = Path(os.path.normpath(Path.cwd() / path))
    for parent in (path, *path.parents):
        if real_path(parent) == top:
            return path.relative_to(parent)
    # A link from elsewhere into the tree.
    real = real_path(path)
    return real.relative_to(top) if real.is_relative_to(top) else None


def _outer_top(start: Path, top: Path) -> Path | None:
    """Return the repository that another one lies in, seen from a folder; `None` if none does."""
    try:
        outer = top_of(start)
    except UsageError:
        return None
    return outer if outer != top and top.is_relative_to(outer) else None


def working_tree(location: Location) -> Tree:
    """Return the working tree, including uncommitted changes.

    Raises:
        UsageError: if its code runs in this process, or if it has no commit.
    """
    refuse_code_of(location.top)
    try:
        commit = ask_git(location.top, "rev-parse", "--verify", "HEAD")
    except UsageError as error:
        raise UsageError(f"{location.top}: HEAD is no commit: {error}; expected one") from None
    top, changed = location.top, changed_files(location.top)
    tree = Tree("working tree", commit, bool(changed), top, location)
    return replace(tree, changes=digest_of(top, [*changed, *_untracked_of_variants(tree)]))


def _untracked_of_variants(tree: Tree) -> list[str]:
    """Return untracked code that variants may use, without an environment that lies there."""
    top = tree.top
    real = [real_path(top / place) for place in tree.location.places]  # git follows no link
    found = untracked_code(
        top, [each.relative_to(top) for each in real if each.is_relative_to(top)]
    )
    if not found:
        return []
    shared = {*map(str, within(shared_places(tree, tracked_files(top)), [top], found))}
    return [name for name in found if name not in shared]


def shared_places(head: Tree, tracked: frozenset[str]) -> list[Path]:
    """Return the places of installed code and of temporary files, which are of no revision.

    An environment among sources only counts in part.

    Args:
        head: the working tree, which the environment of the Python that runs may lie in.
        tracked: names that git tracks in either tree; these belong to the trees wherever they lie.
    """
    checkout = head.location.top

    def is_shared(prefix: Path) -> bool:
        if prefix == checkout or not prefix.is_relative_to(checkout):
            return True
        place = f"{prefix.relative_to(checkout)}/"
        return any(name.startswith(place) for name in tracked)

    return [*installed_places(is_shared), real_path(tempfile.gettempdir())]


def within(places: Iterable[Path], tops: Iterable[Path], names: Iterable[str]) -> Iterator[Path]:
    """Yield the names, relative to the tops, that lie in places below them."""
    folders = tuple(
        f"{place.relative_to(top)}/"
        for top in tops
        for place in places
        if place != top and place.is_relative_to(top)
    )
    yield from (Path(name) for name in sorted(names) if f"{name}/".startswith(folders))


def isolations(base: Tree, head: Tree) -> tuple[Isolation, Isolation]:
    """Return the files that each revision's processes may use: their own tree, and no other.

    All that they are given has the same length for both.
    """
    trees, checkout = (base, head), head.location.top
    tracked = tracked_files(base.top) | tracked_files(checkout)
    *installed, temporary = shared_places(head, tracked)
    tops = (base.top, head.top, checkout)

    def of(tree: Tree, other: Tree, caches: str) -> Isolation:
        return Isolation(
            label=tree.label,
            own=tree.top,
            others=((other.label, other.top), (CHECKOUT, checkout)),
            repository=checkout,
            caches=base.top.parent / caches,
            path=() if tree.location.kernels is None else (tree.top / tree.location.kernels,),
            installed=tuple(installed),
            tracked=tuple(within([*installed, temporary], tops, tracked)),
            package=tree.location.package,
        )

    return of(*trees, "caches-base"), of(*trees[::-1], "caches-head")
