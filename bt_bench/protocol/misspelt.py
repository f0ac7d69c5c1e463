"""Detection of misspelt methods of a suite or a variant, which nobody would call."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

_ALIKE = 0.75
_OVERRIDE_ALIKE = 0.85


def misspelt(found: type, base: type) -> Iterator[str]:
    """Yield a sentence for each public method that resembles a protocol method not overridden.

    Args:
        found: the class.
        base: the class of the protocol that it derives from.
    """
    known = {name for name, value in vars(base).items() if _is_method(value)}
    own = {
        name
        for each in found.__mro__[: found.__mro__.index(base)]
        for name, value in vars(each).items()
        if _is_method(value) and not name.startswith("_")
    }
    for name in sorted(own - set(dir(base))):
        nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=_ALIKE)
        if nearest and nearest[0] not in own:
            yield (
                f"{found.__name__} has {name!r}, which is never used; did you mean "
                f"{nearest[0]!r}? Begin the names of your own with an underscore"
            )


def misspelt_overrides(found: type, source: str) -> Iterator[tuple[int, str]]:
    """Yield methods of a user's class that resemble an inherited one, and that its file never uses.

    Args:
        found: the class.
        source: source text of the file that defines it.

    Yields:
        The line of a method, and a sentence on the likely mistake.
    """
    own = {
        name: value
        for each in found.__mro__
        if each.__module__ == found.__module__
        for name, value in vars(each).items()
        if _is_method(value) and not name.startswith("__")
    }
    bases = [each for each in found.__mro__ if each.__module__ != found.__module__]
    known = {name for each in bases for name, value in vars(each).items() if _is_method(value)}
    nodes = list(ast.walk(ast.parse(source)))
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {str(node.value) for node in nodes if isinstance(node, ast.Constant)}  # for getattr
    lines = {node.name: node.lineno for node in nodes if isinstance(node, ast.FunctionDef)}
    for name in sorted(own.keys() - known - used):
        candidates = sorted(known - own.keys())
        nearest = difflib.get_close_matches(name, candidates, n=1, cutoff=_OVERRIDE_ALIKE)
        if nearest and name in lines:
            yield (
                lines[name],
                f"{found.__name__} has {name!r}, which nothing uses; did you mean {nearest[0]!r}?",
            )


def _is_method(value: object) -> bool:
    return callable(value) or isinstance(value, classmethod | staticmethod | property)
