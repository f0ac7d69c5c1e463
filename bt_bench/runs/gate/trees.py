"""Two revisions of a kernels tree: the working tree, and another one in a temporary folder.

Only kernels differ between revisions; the harness that measures them is the installed one. The
user's checkout and index are never touched, and nothing is written into the user's repository.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bt_bench.base import scratch_folder, without_another_git
from bt_bench.base.errors import NotComparableError, UsageError
from bt_bench.base.processes import run_kept
from bt_bench.protocol import DEFAULT_REF, SuiteRef, load_suite
from bt_bench.runs.gate.own_code import refuse_code_of
from bt_bench.runs.gate.revisions import ask_git, commit_of, top_of, tracked_files, tracked_root
from bt_bench.variants import (
    REFERENCE,
    Isolation,
    VariantEntry,
    find_variants,
    installed_places,
    real_path,
)

BUILD_SECONDS = 1800.0
TAIL_LINES = 20


@dataclass(frozen=True)
class Location:
    """The location of kernels within a repository.

    Args:
        top: folder of the working tree.
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


@dataclass(frozen=True)
class Tree:
    """One revision on disk.

    Args:
        label: its name in reports.
        commit: the commit; for a working tree, the one that it is based on.
        dirty: whether tracked files differ from the commit.
        top: folder of the checkout.
        location: where kernels are in the checkout.
    """

    label: str
    commit: str
    dirty: bool
    top: Path
    location: Location

    def variants(self) -> dict[str, VariantEntry]:
        """Return all variants of this revision, by name.

        Raises:
            UsageError: if a folder is missing or leads out of the tree, naming both, or if the
                revision has kernels that the working tree lacks.
        """
        kernels = self.location.kernels
        for folder in (*self.location.folders, *([kernels] if kernels is not None else [])):
            if not (self.top / folder).is_dir():
                raise UsageError(
                    f"{self.label} has no folder {folder}; expected one in both revisions; choose "
                    "another --base or another --kernels"
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
        folders: folders of variants, in either tree: paths of flags are in the head's.
        suite: the suite in the base's config.

    Raises:
        UsageError: for a folder that is in neither tree.
    """
    location, package = head.location, head.location.package
    places = [
        place_below(folder, base.top) or _place_in(folder, head.top, f"{base.label}: kernels")
        for folder in folders
    ]
    root, own = _told_apart(places, base.top, package)
    if suite.root is not None and location.suite.folder is not None:
        root = place_below(suite.root, base.top) or _place_in(suite.root, head.top, "--suite")
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
    status = ask_git(location.top, "status", "--porcelain", "--untracked-files=no")
    return Tree("working tree", commit, bool(status), location.top, location)


@contextmanager
def base_tree(location: Location, ref: str) -> Iterator[Tree]:
    """Yield a checkout of a revision in a temporary folder, which is removed when the block ends.

    It is a linked worktree of the user's repository, so it has the repository's settings, filters,
    LFS objects, tags for `git describe` and end-of-line rules. Only the administrative folder,
    which `git worktree add` would make in `.git/worktrees`, is in the temporary folder too: git
    only requires a `commondir` in it that leads to the repository (gitrepository-layout(5)). So a
    gate that is killed leaves nothing in the user's repository, and the next one removes its
    remains elsewhere (`bt_bench.base.scratch`).

    `git archive` would leave out files (`export-ignore`) and give a build no repository to ask;
    a clone would have another configuration, other remotes, and none of the files of LFS.

    Raises:
        UsageError: for a revision that git does not know or cannot check out, with git's message.
    """
    commit = commit_of(location.top, ref)
    with scratch_folder("gate") as scratch:
        top = scratch / "base"
        try:
            _check_out(location.top, commit, top, scratch / "git")
        except UsageError as error:
            raise UsageError(f"--base {ref}: cannot be checked out: {error}") from None
        yield Tree(_label(ref, commit), commit, False, top, location)


def _check_out(repository: Path, commit: str, top: Path, admin: Path) -> None:
    """Create a linked worktree.

    Args:
        repository: a checkout.
        commit: the commit to check out.
        top: folder of the worktree; new.
        admin: git's administrative folder of the worktree; new.
    """
    common, own = (
        (repository / ask_git(repository, "rev-parse", option)).resolve()
        for option in ("--git-common-dir", "--git-dir")
    )
    top.mkdir()
    (admin / "info").mkdir(parents=True)
    (admin / "commondir").write_text(f"{common}\n", encoding="utf-8")
    (admin / "gitdir").write_text(f"{top / '.git'}\n", encoding="utf-8")
    (admin / "HEAD").write_text(f"{commit}\n", encoding="utf-8")
    (top / ".git").write_text(f"gitdir: {admin}\n", encoding="utf-8")
    # If the checkout is sparse, so is the base, as with `worktree add`.
    settings = admin / "config.worktree"
    for path in (settings, admin / "info/sparse-checkout"):
        theirs = own / path.relative_to(admin)
        if theirs.is_file():
            shutil.copyfile(theirs, path)
    for key in ("core.worktree", "core.bare"):
        with suppress(UsageError):  # git fails if there is no such setting
            ask_git(top.parent, "config", "--file", str(settings), "--unset-all", key)
    ask_git(top, "reset", "--hard", "--quiet", "--no-recurse-submodules")


def build(tree: Tree, command: str, seconds: float = BUILD_SECONDS) -> None:
    """Run a shell command in a tree.

    Args:
        tree: the tree.
        command: the command as typed.
        seconds: time limit.

    Raises:
        UsageError: if it fails or takes too long, with the end of its output.
    """
    try:
        process = run_kept(
            ["/bin/sh", "-c", command],
            cwd=tree.top,
            env=without_another_git(),
            stderr=subprocess.STDOUT,
            seconds=seconds,
        )
    except subprocess.TimeoutExpired as error:
        printed = (error.output or b"").decode(errors="replace")
        raise UsageError(
            f"{tree.label}: --build {command!r} has not ended after {seconds:g} s; if it only "
            f"needs longer, give it more with --build-timeout SECONDS{_tail(printed)}"
        ) from None
    if process.returncode:
        raise UsageError(
            f"{tree.label}: --build {command!r} ended with exit code {process.returncode}"
            + _tail(process.stdout)
        )


def _tail(output: str) -> str:
    tail = "\n".join(f"  {line}" for line in output.splitlines()[-TAIL_LINES:])
    return f"; the end of its output:\n{tail}" if tail else "; it printed nothing"


def _label(ref: str, commit: str) -> str:
    short = commit[:8]
    return short if commit.startswith(ref) else f"{ref} ({short})"


def places_of_environment(head: Tree, tracked: frozenset[str]) -> list[Path]:
    """Return the places of installed code; an environment among sources only counts in part.

    Args:
        head: the working tree, which the environment of the Python that runs may lie in.
        tracked: names that git tracks in either tree.
    """

    def is_shared(prefix: Path) -> bool:
        if prefix == head.top or not prefix.is_relative_to(head.top):
            return True
        place = f"{prefix.relative_to(head.top)}/"
        return any(name.startswith(place) for name in tracked)

    return installed_places(is_shared)


def _within(places: Iterable[Path], tops: Iterable[Path], names: Iterable[str]) -> Iterator[Path]:
    """Yield the names, relative to the tops, that lie in places below them."""
    folders = tuple(
        f"{place.relative_to(top)}/"
        for top in tops
        for place in places
        if place != top and place.is_relative_to(top)
    )
    yield from (Path(name) for name in sorted(names) if f"{name}/".startswith(folders))


def isolations(base: Tree, head: Tree) -> tuple[Isolation, Isolation]:
    """Return the files that each revision's processes may use: their own tree, not the other's."""
    trees, scratch = (base, head), base.top.parent
    tracked = tracked_files(base.top) | tracked_files(head.top)
    installed = places_of_environment(head, tracked)
    free = [*installed, real_path(tempfile.gettempdir())]

    def of(tree: Tree, other: Tree, caches: str) -> Isolation:
        return Isolation(
            label=tree.label,
            own=tree.top,
            others=((other.label, other.top),),
            repository=head.top,
            caches=scratch / caches,
            path=() if tree.location.kernels is None else (tree.top / tree.location.kernels,),
            installed=tuple(installed),
            tracked=tuple(_within(free, [tree.top for tree in trees], tracked)),
            package=tree.location.package,
        )

    return of(*trees, "caches-base"), of(*trees[::-1], "caches-head")
