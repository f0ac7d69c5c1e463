"""Selection of names by the patterns of `-k`, and lists of names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from bt_bench.base.errors import UsageError, nearest

MAX_LISTED = 20


def select_names(names: Sequence[str], select: str) -> list[str]:
    """Return the names of the cases that `-k` selects, in the given order.

    A pattern with `*`, `?` or `[` must match the whole name, as file names do in a shell. Any other
    pattern matches the names that contain it. A `!` before a pattern excludes its matches. With
    only `!` patterns, all other names are kept.

    Args:
        names: the names of all cases.
        select: patterns, separated by commas.

    Raises:
        UsageError: if there is no pattern, if a pattern without `!` matches no name, or if no name
            is left.
    """
    patterns = [pattern.strip() for pattern in select.split(",") if pattern.strip(" !")]
    if not patterns:
        raise UsageError(f"-k {select!r}: expected text or a pattern of the names of cases")
    unwanted = [pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")]
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    for pattern in wanted:
        # A pattern that matches nothing is probably misspelt.
        if not any(_matches(name, pattern) for name in names):
            like = nearest(pattern, names) or _nearest_part(pattern, names)
            hint = "the" if like is None else f"did you mean {like!r}? The"
            raise UsageError(
                f"-k {pattern!r}: no case matches; {hint} cases are:\n{_listed(names)}"
            )
    kept = [
        name
        for name in names
        if any(_matches(name, pattern) for pattern in wanted)
        and not any(_matches(name, pattern) for pattern in unwanted)
    ]
    if not kept:
        raise UsageError(f"-k {select!r}: no case is left; the cases are:\n{_listed(names)}")
    return kept


def names_given(option: str, given: str | Sequence[str] | None) -> list[str] | None:
    """Return the names of an option, given as `a,b` or one by one; `None` where it was not given.

    Raises:
        UsageError: if there is no name in it.
    """
    if given is None:
        return None
    names = given.split(",") if isinstance(given, str) else given
    names = [name.strip() for name in names if name.strip()]
    if not names:
        raise UsageError(f"{option} names none; expected one or more")
    return names


def joined(patterns: str | Sequence[str] | None) -> str | None:
    """Join the patterns of all `-k` into one text; `None` without any."""
    return ",".join([patterns] if isinstance(patterns, str) else patterns) if patterns else None


def _nearest_part(pattern: str, names: Sequence[str]) -> str | None:
    """Return the part of a name closest to a pattern, since a pattern may be a part."""
    parts = dict.fromkeys(part for name in names for part in re.split(r"[_.\-]", name))
    return nearest(pattern, parts)


def _matches(name: str, pattern: str) -> bool:
    if any(wildcard in pattern for wildcard in "*?["):
        return fnmatchcase(name, pattern)
    return pattern in name


def _listed(names: Sequence[str]) -> str:
    lines = [f"  {name}" for name in names[:MAX_LISTED]]
    if len(names) > MAX_LISTED:
        lines.append(f"  … and {len(names) - MAX_LISTED} more")
    return "\n".join(lines)
