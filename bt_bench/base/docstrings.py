"""Docstrings as texts of help and lists, where Python may have dropped them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def docstring_of(described: ModuleType | Callable[..., Any]) -> str | None:
    """Return the docstring of a module or function.

    `python -OO` and `PYTHONOPTIMIZE=2` drop docstrings; then it is read from the source file.
    """
    if described.__doc__ or sys.flags.optimize < 2:
        return described.__doc__
    import ast  # not above: `--help` imports this module
    import inspect
    import textwrap

    try:
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(described)))
        return ast.get_docstring(tree if isinstance(described, ModuleType) else tree.body[0])
    except (OSError, SyntaxError, TypeError):  # without a source file, or not a whole statement
        return None
