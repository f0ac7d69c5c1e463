"""Digests of host code, equal for two revisions that differ only in comments and docstrings."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def digest_of(modules: Mapping[str, Path]) -> str:
    """Return a SHA-256 of the names and syntax trees of modules, without comments and docstrings.

    Args:
        modules: files by module name.
    """
    digest = hashlib.sha256()
    for name in sorted(modules):
        tree = ast.parse(modules[name].read_bytes())
        digest.update(f"{name}\n{syntax(tree)}\n".encode())
    return digest.hexdigest()


def syntax(node: object) -> str:
    """Format a syntax tree without docstrings, positions and empty fields.

    `ast.dump` is unsuitable: its empty fields differ between versions of Python.
    """
    if isinstance(node, list):
        return "[" + ",".join(map(syntax, node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = fields["body"][1:]
    given = [(name, value) for name, value in fields.items() if value is not None and value != []]
    return f"{type(node).__name__}({','.join(f'{name}={syntax(value)}' for name, value in given)})"


class ImportWatch(MetaPathFinder):
    """A finder that records the imports made while it is in `sys.meta_path`; it finds none."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Record the name, and leave the module to the finders that follow."""
        self._asked.add(fullname)
        return None

    def take(self, package: str) -> set[str]:
        """Return the recorded modules of a package, and forget them for the next variant."""
        taken = {name for name in self._asked if name.partition(".")[0] == package}
        self._asked -= taken
        return taken

    def others(self, packages: Iterable[str]) -> dict[str, Path]:
        """Return the files of modules recorded so far, except installed ones and `packages`.

        These stay loaded: a later variant that uses them triggers no new search.
        """
        known = {*packages, *sys.builtin_module_names}
        names = [name for name in self._asked if name.partition(".")[0] not in known]
        files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
        return {
            name: Path(file)
            for name, file in files.items()
            if file is not None and file.endswith(".py") and not _is_installed(Path(file))
        }


def _is_installed(path: Path) -> bool:
    return any(path.resolve().is_relative_to(folder) for folder in _installed_folders())


@cache
def _installed_folders() -> list[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return [Path(sysconfig.get_path(name)).resolve() for name in names]
