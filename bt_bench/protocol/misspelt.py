"""Finds methods of a suite that are probably misspelt: nobody would ever call them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

_ALIKE = 0.75


def misspelt(found: type, base: type) -> Iterator[str]:
    """Public methods of a class that look like one of the protocol, in a sentence each.

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


def _is_method(value: object) -> bool:
    return callable(value) or isinstance(value, classmethod | staticmethod | property)
