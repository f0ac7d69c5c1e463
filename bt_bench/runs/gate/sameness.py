"""Comparison of two trees on disk; only equality proves equal code without measuring it.

The dependencies of a variant cannot be listed: helper modules, data, libraries that it loads,
programs that it starts, or whether some file exists at all. So nothing short of equal trees proves
equal code. Git is not asked, since it can be configured to skip files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bt_bench.base import read_text, unpacked_path
from bt_bench.base.errors import UsageError
from bt_bench.protocol import is_regular
from bt_bench.results import CONFIG_NAME, DIVISION_NAME, NCU_REPORT_NAME
from bt_bench.runs.gate.revisions import tracked_files
from bt_bench.runs.gate.trees import Tree
from bt_bench.variants import encodable, is_there, real_path

# Files of runs, gates and profiles. Runs have a file for each variant, too.
_PAGES = frozenset(
    {"comparison.md", "report.html", CONFIG_NAME, DIVISION_NAME, ".lock", NCU_REPORT_NAME}
    | {"counters.md", "profile.md", "timeline.svg", "trace.json"}
)
_DOCUMENTS = frozenset(
    {"census.json", "counters.json", "recording.json", "timeline.json", "verdicts.json"}
)
_VERSION = re.compile(rb'\{\s*"schema_version": ?\d+,')
_OF_A_RUN = re.compile(_VERSION.pattern + rb'\s*"run_id": ?"')
_HEAD_BYTES = 200
_CHUNK = 2**20
_LOOKED_FOR = 4  # one more than is shown


@dataclass(frozen=True)
class Sameness:
    """The result of comparing two revisions.

    Args:
        proved: whether the trees are certainly equal.
        how: a sentence on the comparison, or on the differences.
    """

    proved: bool
    how: str


def compare_trees(base: Tree, head: Tree, *, built: bool) -> Sameness:
    """Compare all files of two checkouts byte by byte.

    It skips git's own folder, and folders that hold nothing but results of bt-bench, if only the
    head has them and git does not track them there. These folders are named, since a variant could
    read them.

    Args:
        base: one tree.
        head: the other.
        built: whether a `--build` has run, which can make equal files differ in effect.
    """
    if built:
        return Sameness(False, "Everything is measured, since --build ran in both trees.")
    labels = base.label, head.label
    # As the checkout has it: in the copy, git would not know a file that was added since.
    tracked = tracked_files(head.location.top)
    comparison = Comparison(base.top, head.top, labels, tracked)
    found = list(islice(comparison.differences(), _LOOKED_FOR))
    if found:
        shown, more = found[: _LOOKED_FOR - 1], len(found) >= _LOOKED_FOR
        return Sameness(
            False,
            f"Everything is measured, since the trees differ: {encodable(', '.join(shown))}"
            f"{' and more' * more}.",
        )
    beside = ""
    if comparison.results:
        named = encodable(", ".join(map(str, comparison.results[: _LOOKED_FOR - 1])))
        others = " and more" * (len(comparison.results) >= _LOOKED_FOR)
        beside = f", and nothing beside them but results of bt-bench ({named}{others})"
    return Sameness(
        True,
        f"Nothing is measured, since the trees are equal: {comparison.files} files, byte by byte"
        f"{beside}. Files that git ignores are in neither, and no --build ran.",
    )


class Comparison:
    """A walk through two folders, one of each revision, side by side.

    Args:
        base: the folder of the base.
        head: the folder of the head.
        labels: labels of both revisions.
        tracked: names that git tracks in the head, relative to the folder; these always count.

    Attributes:
        files: number of files compared so far.
        results: folders of the head that were passed over for the results of bt-bench in them.
    """

    def __init__(
        self,
        base: Path,
        head: Path,
        labels: tuple[str, str],
        tracked: Iterable[str] = (),
    ) -> None:
        self.files = 0
        self.results: list[Path] = []
        self._base, self._head, self._labels = base, head, labels
        self._tracked = _with_folders(tracked)

    def differences(self) -> Iterator[str]:
        """Yield the differences in words, in the order of names."""
        ahead = [Path()]  # trees may be deeper than Python's stack
        while ahead:
            path = ahead.pop()
            try:
                names = self._names_in(path)
                if names is None:
                    yield from self._difference(path)
                else:
                    ahead += [path / name for name in sorted(names, reverse=True)]
            except OSError as error:
                yield f"{path} (not readable: {error.strerror})"

    def _names_in(self, path: Path) -> set[str] | None:
        """List a folder of both sides; `None` for anything else."""
        tops = self._base, self._head
        kinds = [_status(top / path) for top in tops]
        if not all(kind is not None and stat.S_ISDIR(kind.st_mode) for kind in kinds):
            return None
        if path == Path(".git"):
            return set()
        return {name for top in tops for name in os.listdir(top / path)}  # noqa: PTH208

    def _difference(self, path: Path) -> Iterator[str]:
        """Yield the difference at a path that is not a folder on both sides."""
        old, new = _status(self._base / path), _status(self._head / path)
        if self._is_passed_over(path, old, new):
            return
        if old is None or new is None:
            yield f"{path} (only in the {self._labels[old is None]})"
        elif not self._is_equal(path):
            yield str(path)

    def _is_passed_over(
        self, path: Path, old: os.stat_result | None, new: os.stat_result | None
    ) -> bool:
        if path == Path(".git"):
            return True
        # Anything in the base was committed, by mistake or on purpose.
        if old is not None or new is None or str(path) in self._tracked:
            return False
        if stat.S_ISDIR(new.st_mode) and self._has_only_results(path):
            self.results.append(path)
            return True
        return False

    def _has_only_results(self, path: Path) -> bool:
        """Return whether a folder holds results, or folders of such, and nothing else."""
        ahead, found = [self._head / path], False
        while ahead:
            folder = ahead.pop()
            entries = [*os.scandir(folder)]
            if not entries:
                return False
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    return False
                elif _is_result(Path(entry.path)):
                    found = True
                elif entry.name not in _PAGES:
                    return False
        return found

    def _is_equal(self, path: Path) -> bool:
        self.files += 1
        old, new = self._base / path, self._head / path
        return same_file(old, new) and (not old.is_symlink() or self._is_equal_link(old, new))

    def _is_equal_link(self, old: Path, new: Path) -> bool:
        """Return whether links lead to the same; a relative one must not lead out of its tree.

        Nor may it lead to something in one tree alone, which may be passed over there.
        """
        if old.readlink().is_absolute():
            return True
        return is_there(old) == is_there(new) and all(
            real_path(link).is_relative_to(top)
            for link, top in ((old, self._base), (new, self._head))
        )


def _is_result(path: Path) -> bool:
    """Return whether a regular file is a result: by its name, or a variant's result of a run."""
    name = unpacked_path(path).name
    if not name.endswith(".json"):
        return False
    if path.name == name:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    else:
        try:
            head = read_text(path, str(path)).encode()[:_HEAD_BYTES]
        except UsageError:
            return False
    return (_VERSION if name in _DOCUMENTS else _OF_A_RUN).match(head) is not None


def _with_folders(names: Iterable[str]) -> set[str]:
    """Return names of files together with the names of all folders that they are in."""
    found = set(names)
    for name in tuple(found):
        folder = name.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def _status(path: Path) -> os.stat_result | None:
    """Return a path's status without following links; `None` if it does not exist."""
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def same_file(old: Path, new: Path) -> bool:
    """Return whether two paths are equal files, or links with equal targets.

    Git keeps only one of the permissions, so no other is compared.
    """
    of_old, of_new = _status(old), _status(new)
    if of_old is None or of_new is None:
        return False
    if stat.S_ISLNK(of_old.st_mode) and stat.S_ISLNK(of_new.st_mode):
        return old.readlink() == new.readlink()
    regular = stat.S_ISREG(of_old.st_mode) and stat.S_ISREG(of_new.st_mode)
    return (
        regular
        and of_old.st_size == of_new.st_size
        and of_old.st_mode & stat.S_IXUSR == of_new.st_mode & stat.S_IXUSR
        and _equal_bytes(old, new)
    )


def same_bytes(old: Path, new: Path) -> bool:
    """Return whether two paths lead to equal files, or neither to a file; no if unreadable."""
    if not is_regular(old) or not is_regular(new):
        return is_regular(old) == is_regular(new)
    try:
        return _equal_bytes(old, new)
    except OSError:
        return False


def _equal_bytes(old: Path, new: Path) -> bool:
    with old.open("rb") as first, new.open("rb") as second:
        while True:
            left, right = first.read(_CHUNK), second.read(_CHUNK)
            if left != right:
                return False
            if not left:
                return True
