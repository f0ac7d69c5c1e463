"""Import modules of an unpacked vLLM wheel without its dependencies, for planning code only.

The named modules are run from their files. Every other module of vLLM, and every package that only
the other code needs, is a stand-in: its names can be called, subclassed and used in annotations,
and do nothing. Use a process of its own, since the modules are entered into `sys.modules`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ABSENT = ("einops", "transformers", "tqdm")
"""Packages that the modules import, and that planning never calls."""


class StandIn:
    """An object that can be called, subclassed, iterated and entered, to no effect; it is false."""

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return the one argument if it is a function or class, as a decorator would."""
        is_decorator = len(arguments) == 1 and not options and callable(arguments[0])
        return arguments[0] if is_decorator else StandIn()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __getitem__(self, key: Any) -> StandIn:
        return self

    def __or__(self, other: Any) -> StandIn:
        return self

    __ror__ = __or__

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _StandInModule(ModuleType):
    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, root: Path, real: Collection[str]) -> None:
        self._root = root
        self._real = frozenset(real)

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name in self._real:
            file = self._root.joinpath(*name.split(".")).with_suffix(".py")
            return importlib.util.spec_from_file_location(name, file)
        if name.partition(".")[0] in ("vllm", *ABSENT):
            return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)
        return None


def install(root: Path, real: Collection[str]) -> None:
    """Have imports of vLLM in this process find the real modules below `root`, else stand-ins.

    Raises:
        FileNotFoundError: naming the first of the real modules that has no file below `root`.
    """
    for name in real:
        file = root.joinpath(*name.split(".")).with_suffix(".py")
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing; expected an unpacked wheel of vLLM 0.33.0")
    sys.meta_path.insert(0, _Finder(root, real))
