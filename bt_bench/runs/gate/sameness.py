"""Whether two trees are equal on disk, the only proof of equal code that needs no measurement.

What a variant uses cannot be listed: helper modules, data, libraries that it loads, programs that
it starts, or whether some file exists at all. So nothing short of equal trees proves equal code.
Git is not asked, since it skips ignored files and can be told to skip more.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bt_bench.runs.gate.trees import Tree, is_tracked
from bt_bench.variants import installed_places

# Python and its tools write these for themselves. Python's own bytecode is not used in a gate; see
# `bt_bench.variants.isolation.FreshSourceLoader`.
CACHES = frozenset(
    {"__pycache__", ".hypothesis", ".import_linter_cache", ".mypy_cache", ".pytest_cache"}
    | {".ruff_cache"}
)
_CHUNK = 2**20
_LOOKED_FOR = 4  # one more than is shown


@dataclass(frozen=True)
class Sameness:
    """Whether nothing differs between two revisions.

    Args:
        proved: whether the trees are certainly equal.
        how: what was compared, or what differs; a sentence.
    """

    proved: bool
    how: str


def compare_trees(base: Tree, head: Tree, *, built: bool, ours: Path | None = None) -> Sameness:
    """Compares all files of two trees byte by byte, including those that git ignores.

    It skips git's own folders, the environment of the Python that runs, and caches of
    Python's tools (`CACHES`).

    Args:
        base: one tree.
        head: the other.
        built: whether a `--build` has run, which can make equal files differ in effect.
        ours: a folder of the gate itself, which may lie in a tree.
    """
    if built:
        return Sameness(False, "Everything is measured, since --build ran in both trees.")
    passed_over = set(installed_places())
    if ours is not None:
        passed_over.add(ours.resolve())
    comparison = _Comparison(base, head, passed_over)
    found = list(islice(comparison.differences(), _LOOKED_FOR))
    if found:
        shown, more = found[: _LOOKED_FOR - 1], len(found) >= _LOOKED_FOR
        return Sameness(
            False,
            f"Everything is measured, since the trees differ: {', '.join(shown)}"
            f"{' and more' * more}.",
        )
    return Sameness(
        True,
        f"Nothing is measured, since the trees are equal: {comparison.files} files, byte by byte, "
        "and nothing beside them but caches of Python's tools; no --build ran.",
    )


class _Comparison:
    """A walk through two trees side by side.

    Attributes:
        files: how many files were compared so far.
    """

    def __init__(self, base: Tree, head: Tree, passed_over: set[Path]) -> None:
        self.files = 0
        self._base, self._head = base, head
        self._passed_over = passed_over

    def differences(self, folder: Path = Path()) -> Iterator[str]:
        """What differs below a folder, in words."""
        old, new = (_entries(tree.top / folder) for tree in (self._base, self._head))
        for name in sorted(old.keys() | new.keys()):
            path = folder / name
            if self._is_passed_over(path, old.get(name), new.get(name)):
                continue
            folders = [stat.S_ISDIR(each[name].st_mode) for each in (old, new) if name in each]
            if self._holds_passed_over(path) and all(folders):
                yield from self.differences(path)
            elif name not in old or name not in new:
                there = self._head if name in new else self._base
                yield f"{path} (only in the {there.label})"
            elif stat.S_ISDIR(old[name].st_mode) and stat.S_ISDIR(new[name].st_mode):
                yield from self.differences(path)
            elif not self._is_equal(path, old[name], new[name]):
                yield str(path)

    def _is_passed_over(
        self, path: Path, old: os.stat_result | None, new: os.stat_result | None
    ) -> bool:
        if path == Path(".git"):
            return True
        # A cache that the base has was committed, by mistake or on purpose, so it counts.
        if path.name in CACHES and old is None and new is not None:
            return self._is_a_cache(path)
        # The paths of the trees have no symlinks, and symlinks to folders are not followed.
        return any(tree.top / path in self._passed_over for tree in (self._base, self._head))

    def _is_a_cache(self, path: Path) -> bool:
        """Whether a folder with the name of a cache holds what such a cache does."""
        top = self._head.top
        if is_tracked(top, path):
            return False
        return path.name != "__pycache__" or all(
            name.endswith(".pyc") for _, _, names in os.walk(top / path) for name in names
        )

    def _holds_passed_over(self, path: Path) -> bool:
        """Whether a skipped folder lies below a folder, which may be on one side only."""
        tops = (self._base.top, self._head.top)
        return any(top / path in folder.parents for folder in self._passed_over for top in tops)

    def _is_equal(self, path: Path, old: os.stat_result, new: os.stat_result) -> bool:
        self.files += 1
        old_path, new_path = self._base.top / path, self._head.top / path
        if stat.S_ISLNK(old.st_mode) and stat.S_ISLNK(new.st_mode):
            return self._is_equal_link(old_path, new_path)
        regular = stat.S_ISREG(old.st_mode) and stat.S_ISREG(new.st_mode)
        # Git keeps only one of the permissions.
        return (
            regular
            and old.st_size == new.st_size
            and old.st_mode & stat.S_IXUSR == new.st_mode & stat.S_IXUSR
            and _same_bytes(old_path, new_path)
        )

    def _is_equal_link(self, old: Path, new: Path) -> bool:
        """Whether links have equal targets; a relative one must not lead out of its tree."""
        target = old.readlink()
        if new.readlink() != target:
            return False
        if target.is_absolute():
            return True
        return all(
            link.resolve().is_relative_to(tree.top)
            for link, tree in ((old, self._base), (new, self._head))
        )


def _entries(folder: Path) -> dict[str, os.stat_result]:
    if not folder.is_dir():
        return {}
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat(follow_symlinks=False) for entry in entries}


def _same_bytes(old: Path, new: Path) -> bool:
    with old.open("rb") as first, new.open("rb") as second:
        while True:
            left, right = first.read(_CHUNK), second.read(_CHUNK)
            if left != right:
                return False
            if not left:
                return True
