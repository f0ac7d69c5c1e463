"""Loading of a file of functions: each time anew, with copies of the modules that lie beside it.

A file is loaded once as the suite, which makes inputs and checks, and once for each variant. No two
of these share a function, a global or a helper module, as with the variants of any suite.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bt_bench.base.errors import UsageError
from bt_bench.functions.declared import DECLARED, Benchmark
from bt_bench.protocol import FreshSourceLoader
from bt_bench.variants import installed_places, real_path

if TYPE_CHECKING:
    from bt_bench.variants import VariantEntry

METHOD = "call"
"""The operation of every suite that is made of functions, and its method."""


def load_file(path: Path, name: str) -> ModuleType:
    """Execute a file as a module of this name, which is not kept in `sys.modules`.

    Raises:
        Exception: whatever the file raises.
    """
    with alone(path.parent):
        loader = FreshSourceLoader(name, str(path))
        spec = importlib.machinery.ModuleSpec(name, loader, origin=str(path))
        spec.has_location = True
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            loader.exec_module(module)
        finally:
            sys.modules.pop(name, None)
    return module


def benchmarks_of(module: ModuleType, path: Path) -> dict[str, Benchmark]:
    """Return the benchmarks that a file declares, by name.

    Raises:
        UsageError: if there is none, or one lacks a reference or a second function.
    """
    found: dict[str, Benchmark] = {each.name: each for each in getattr(module, DECLARED, ())}
    if not found:
        raise UsageError(
            f"{path}: declares no benchmark; expected a function under @bt_bench.benchmark(…), as "
            "in docs/functions.md"
        )
    for name, each in found.items():
        line = f"{path}:{each.make.__code__.co_firstlineno}"
        if each.right is None:
            raise UsageError(
                f"{line}: benchmark {name!r} has no reference; expected a function under "
                f"@{name}.reference, whose results are right by definition"
            )
        if not each.implementations:
            raise UsageError(
                f"{line}: benchmark {name!r} has nothing to time; expected a function under "
                f"@{name}.variant"
            )
    return found


def load_variant(entry: VariantEntry) -> type[Any]:
    """Load a variant of a file of functions, in a copy of the file of its own.

    Its class has a static method for each benchmark that has a function of that name, and stands
    for all of these.

    Raises:
        UsageError: if the file has no function of that name.
        Exception: whatever the file raises.
    """
    module = load_file(entry.path, entry.package)
    functions = {}
    graph = True
    for name, each in benchmarks_of(module, entry.path).items():
        made = each.right if entry.is_reference else each.implementations.get(entry.name)
        if made is not None:
            functions[name] = made
            graph = graph and made.graph
    if not functions:
        raise UsageError(f"{entry.path}: has no function named {entry.name!r} any more")
    members: dict[str, Any] = {
        name: staticmethod(each.function) for name, each in functions.items()
    }
    members |= {
        "__module__": module.__name__,
        "features": frozenset(functions),
        "capturable": frozenset({METHOD}) if graph else frozenset(),
    }
    return type("Variant", (), members)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Import from a folder during the block, in copies that nobody else has.

    Modules of the folder that are loaded already are put aside, and those that the block has loaded
    are forgotten after it: another revision of the folder may have modules of the same names.
    """
    before = _modules_below(folder)
    for name in before:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        for name in _modules_below(folder):
            del sys.modules[name]
        sys.modules.update(before)


def _modules_below(folder: Path) -> dict[str, ModuleType]:
    """Return the loaded modules whose files lie in a folder and are not installed."""
    top, installed = real_path(folder), tuple(installed_places())
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name.startswith(("bt_bench", "bt_kernels", "__main")):
            continue
        if not str(file).startswith((f"{folder}{os.sep}", f"{top}{os.sep}")):
            continue
        if not any(Path(file).is_relative_to(place) for place in installed):
            found[name] = module
    return found
