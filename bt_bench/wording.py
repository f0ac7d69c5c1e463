"""How messages spell values, and what they offer in place of a wrong name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

MAX_SHOWN_VALUE = 60
MAX_SHOWN_DIGITS = 40


def shown(value: object) -> str:
    """A value as a config would spell it, cut where it is long."""
    text = _spelled(value)
    return text if len(text) <= MAX_SHOWN_VALUE else text[: MAX_SHOWN_VALUE - 1] + "…"


def _spelled(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10**MAX_SHOWN_DIGITS:
        return f"a number of more than {MAX_SHOWN_DIGITS} digits"  # str() refuses huge numbers
    if isinstance(value, float) and not abs(value) < float("inf"):
        return {"inf": ".inf", "-inf": "-.inf"}.get(str(value), ".nan")
    if isinstance(value, list):
        return "[" + ", ".join(map(_spelled, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_spelled(item)}" for key, item in value.items()) + "}"
    return repr(value)


def names_hint(name: str, valid: Iterable[str]) -> str:
    """What to write in place of an unknown name: the nearest valid one, or all of them."""
    names: Sequence[str] = list(valid)
    nearest = difflib.get_close_matches(name, names, n=1)
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    return f"expected one of {', '.join(names)}"
