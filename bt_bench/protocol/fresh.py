"""Loading of modules from their current sources, never from cached bytecode.

Bytecode may be tracked, come from another source, and be marked as not to be compared with it.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import threading
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, ModuleType

_TOOL = Path(__file__).resolve().parents[1]
_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")


class FreshSourceLoader(SourceFileLoader):
    """A loader that compiles a module's source whenever it is loaded.

    Python takes cached bytecode for current if the source has the same size, and the same time to
    the second. A file that a script changes and runs at once may have both and yet differ.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the source as it is now; nothing is cached either."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def load_only_sources() -> None:
    """Make this process load all modules that are not installed from their sources."""
    if not any(isinstance(finder, _Fresh) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Fresh())


class _Fresh(MetaPathFinder):
    """A finder that lets all others search, and loads the modules they find from source."""

    def __init__(self) -> None:
        self._searching = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module as the other finders do; return `None` if one of them asks meanwhile."""
        if getattr(self._searching, "now", False):
            return None
        self._searching.now = True
        try:
            found = (
                finder.find_spec(fullname, path, target)
                for finder in list(sys.meta_path)
                if finder is not self and hasattr(finder, "find_spec")
            )
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            self._searching.now = False
        return None if spec is None else _from_source(spec)


def _from_source(spec: ModuleSpec) -> ModuleSpec:
    origin = spec.origin
    if origin is None or _is_installed(os.path.dirname(origin)):  # noqa: PTH120
        return spec
    if type(spec.loader) is SourcelessFileLoader:
        raise ImportError(f"{origin} has no source beside it", name=spec.name, path=origin)
    if type(spec.loader) is SourceFileLoader:
        spec.loader = FreshSourceLoader(spec.name, origin)
        spec.cached = None
    return spec


@cache
def _is_installed(folder: str) -> bool:
    real = Path(os.path.realpath(folder))
    return any(real.is_relative_to(place) for place in _installed())


@cache
def _installed() -> frozenset[Path]:
    """Return the folders of installed code, whose bytecode saves seconds, and the tool's own."""
    folders = {*site.getsitepackages(), site.getusersitepackages()}
    folders |= {sysconfig.get_path(name) for name in _INSTALLED}
    return frozenset({Path(os.path.realpath(folder)) for folder in folders} | {_TOOL})
