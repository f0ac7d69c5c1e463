"""Isolation of a judging process from the code of the tree it judges.

Libraries import more than they need: plugins that installed metadata names, and optional helpers.
If the tree is on `sys.path`, as by an editable install, its modules could be among them.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import bt_bench

_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")
_JUDGES = "gate"


def run_no_code_of_judged_trees(arguments: Sequence[str]) -> None:
    """Disable plugins, and for a gate block modules of the checkouts it may judge.

    Call this before anything else is imported.

    Args:
        arguments: words of the command line.
    """
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    if _JUDGES not in arguments:
        return
    outside = _Outside(frozenset(_tops(arguments)))
    if not outside.is_inside(bt_bench.__file__):  # a tree with its own bt-bench has to judge itself
        sys.meta_path.insert(0, outside)


def _tops(arguments: Sequence[str]) -> Iterator[Path]:
    """Yield the tops of the checkouts around the working directory and around paths."""
    values = [argument.rpartition("=")[2] for argument in arguments]
    for text in (".", *values):
        if text and "\0" not in text and os.path.exists(text):  # noqa: PTH110 - never raises
            place = Path(os.path.realpath(text))
            tops = (top for top in (place, *place.parents) if os.path.lexists(top / ".git"))
            yield from list(tops)[:1]


class _Outside(MetaPathFinder):
    """A finder that blocks the modules of some trees: they fail to load.

    A module that is also installed elsewhere on `sys.path` is loaded from there.

    Args:
        tops: tops of the trees.
    """

    def __init__(self, tops: frozenset[Path]) -> None:
        self._tops = tops
        self._installed = [Path(os.path.realpath(sysconfig.get_path(n))) for n in _INSTALLED]
        self._is_searching = False

    def is_inside(self, file: str) -> bool:
        """Return whether a file or folder lies in a tree, and not in its installed packages."""
        real = Path(os.path.realpath(file))
        is_installed = any(map(real.is_relative_to, self._installed))
        return not is_installed and any(map(real.is_relative_to, self._tops))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module by the other finders; avoid or refuse one that lies in a tree."""
        if self._is_searching:
            return None
        self._is_searching = True
        try:
            found = (
                finder.find_spec(fullname, path, target)
                for finder in sys.meta_path
                if finder is not self and hasattr(finder, "find_spec")
            )
            spec = next((spec for spec in found if spec is not None), None)
            if spec is None or not self._is_of_a_tree(spec):
                return spec
            entries = [entry for entry in sys.path if not self.is_inside(entry or ".")]
            other = PathFinder.find_spec(fullname, entries) if path is None else None
        finally:
            self._is_searching = False
        if other is not None and not self._is_of_a_tree(other):
            return other
        spec.loader = _Refusing()  # its place can still be looked up
        return spec

    def _is_of_a_tree(self, spec: ModuleSpec) -> bool:
        # A folder without code is harmless, and each module in it is looked up by its own name.
        return spec.has_location and spec.origin is not None and self.is_inside(spec.origin)


class _Refusing(Loader):
    def exec_module(self, module: ModuleType) -> None:
        raise ModuleNotFoundError(
            f"{module.__name__} is of the tree to be judged, and not loaded where it is judged",
            name=module.__name__,
        )
