"""A variant's own code: its files, and the numbers in them."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import operator
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any

from bt_bench.base.python_files import NOT_READ, python_text
from bt_bench.protocol import Suite
from bt_bench.variants import TOOL

_STANDARD = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
_FACE = TOOL / "__init__.py"  # which files of functions import, and which names all of bt-bench
LARGEST = 2**20  # larger numbers are limits of types, too large to try as sizes
_FOLDED: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def files_of(suite: Suite, variant: type[Any]) -> frozenset[Path]:
    """Return the files of a variant's own code, including those that they import.

    A shipped variant's files are those of the suite's package; any other variant's files lie
    outside of it. They are found by the paths in code objects and by import statements, not in
    `sys.modules`: modules may have been removed from there.
    """
    files = {Path(function.__code__.co_filename) for function in _functions_of(variant)}
    files = {path for path in files if path.is_file() and not _is_installed(path)}
    shipped = {path for path in files if _is_in(path, suite.package)}
    own = files - shipped
    found: set[Path] = set()
    waiting = list(own or shipped)
    while waiting:
        path = waiting.pop()
        if path in found or _is_installed(path) or (own and _is_in(path, suite.package)):
            continue
        try:
            facts = _facts_of(python_text(path))
        except NOT_READ:
            continue  # a file that is never imported need not be Python
        found.add(path)
        waiting += _files(path, facts.imported)
    return frozenset(found)


@dataclass(frozen=True)
class _Facts:
    """The imports and the numbers in a text in Python.

    Args:
        imported: imported names with their number of leading dots. Names taken from a module are
            among them, since they may be modules too.
        constants: the named integers at the top level, including `tl.constexpr` ones.
        numbers: the integers in it.
        names: the names that it uses.
        computed: its binary operations.
    """

    imported: tuple[tuple[str, int], ...]
    constants: Mapping[str, int]
    numbers: frozenset[int]
    names: frozenset[str]
    computed: tuple[ast.BinOp, ...]


@lru_cache(maxsize=1024)  # variants share most of their files, and none takes less than 5 ms
def _facts_of(text: str) -> _Facts:
    """Parse a text once for all that is asked of it.

    Raises:
        SyntaxError: or another one of `NOT_READ`, if it is not Python.
    """
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    # A number of bits to shift by is no size.
    bits = {
        id(node.right)
        for node in nodes
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift | ast.RShift)
    }
    sizes = [node for node in nodes if id(node) not in bits]
    constants = (node.value for node in sizes if isinstance(node, ast.Constant))
    return _Facts(
        tuple(_names_imported(nodes)),
        _constants(tree),
        frozenset(value for value in constants if type(value) is int),
        frozenset(node.id for node in sizes if isinstance(node, ast.Name)),
        tuple(node for node in sizes if isinstance(node, ast.BinOp)),
    )


def _functions_of(variant: type[Any]) -> Iterator[FunctionType]:
    """Yield the functions of a class and its bases, also those in properties and class methods."""
    for kind in variant.__mro__:
        for attribute in vars(kind).values():
            for name in ("fget", "__func__"):
                attribute = getattr(attribute, name, None) or attribute
            function = inspect.unwrap(attribute)
            if isinstance(function, FunctionType):
                yield function


def _is_installed(path: Path) -> bool:
    """Return whether a file is installed or of the standard library: not under development."""
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return bool(installed) or any(path.is_relative_to(folder) for folder in _STANDARD)


def _is_in(path: Path, package: str) -> bool:
    return any(folder.name == package for folder in path.parents)


def _files(path: Path, imported: Iterable[tuple[str, int]]) -> Iterator[Path]:
    """Yield the files that a file imports, from its own tree or another one under development."""
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    for name, level in imported:
        inside = path.parents[level - 1] if level else root
        parts = name.split(".") if name else []
        found = list(_modules(inside, parts))
        if not found and not level:
            found = list(_modules(_folder_of(parts[0]), parts))
        yield from (each for each in found if each != _FACE)


def _names_imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module, node.level
            for alias in node.names:
                yield f"{module}.{alias.name}".removeprefix("."), node.level


def _modules(folder: Path | None, parts: list[str]) -> Iterator[Path]:
    """Yield the files of a module below a folder, after those of the packages around it."""
    if folder is None:
        return
    for depth in range(len(parts) + 1):
        place = folder.joinpath(*parts[:depth])
        for path in (place / "__init__.py", place.with_suffix(".py")):
            if depth and path.is_file():
                yield path


def _folder_of(name: str) -> Path | None:
    """Return the folder that holds a top-level module or package; `None` if it is installed."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    folder = Path(spec.origin).parent
    if _is_installed(folder):
        return None
    return folder.parent if spec.submodule_search_locations else folder


def sizes_of(suite: Suite, variant: type[Any]) -> tuple[int, ...]:
    """Return the numbers in a variant's own files, in ascending order; see `numbers_in`."""
    names = _names_of(variant)
    texts = {path: python_text(path) for path in files_of(suite, variant)}
    constants: dict[str, int] = {}
    for text in texts.values():
        constants |= _facts_of(text).constants
    found = (numbers_in(text, constants | names.get(str(path), {})) for path, text in texts.items())
    return tuple(sorted(set[int]().union(*found)))


def _names_of(variant: type[Any]) -> dict[str, dict[str, int]]:
    """Return the named integers in the modules of a class, also imported ones, by file."""
    found: dict[str, dict[str, int]] = {}
    for function in _functions_of(variant):
        named = function.__globals__.items()
        values = {name: getattr(value, "value", value) for name, value in named}
        numbers = {name: value for name, value in values.items() if type(value) is int}
        found.setdefault(function.__code__.co_filename, {}).update(numbers)
    return found


def _constants(tree: ast.Module) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(value, ast.Call) and len(value.args) == 1:
            value = value.args[0]
        number = _value(value, found)
        if isinstance(target, ast.Name) and number is not None:
            found[target.id] = number
    return found


def numbers_in(text: str, names: Mapping[str, int]) -> set[int]:
    """Return the integers from 3 to `LARGEST` in Python code, also results of folded arithmetic.

    Args:
        text: the code.
        names: values of named integers that it may use.
    """
    facts = _facts_of(text)
    computed = (_value(node, names) for node in facts.computed)
    named = (names[name] for name in facts.names & names.keys())
    return {
        value
        for value in (*facts.numbers, *named, *computed)
        if value is not None and 3 <= value <= LARGEST
    }


def _value(node: ast.AST, names: Mapping[str, int]) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _value(node.left, names), _value(node.right, names)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.LShift):
        return left << right if 0 <= right <= 64 else None
    if isinstance(node.op, ast.Pow):
        return left**right if 0 <= right <= 64 and abs(left) <= 64 else None
    fold = _FOLDED.get(type(node.op))
    if fold is None or (isinstance(node.op, ast.FloorDiv) and right == 0):
        return None
    return fold(left, right)
