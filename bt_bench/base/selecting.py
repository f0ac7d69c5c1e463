"""`-k`: which names match."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from bt_bench.base.errors import UsageError, nearest

MAX_LISTED = 20


def select_names(names: Sequence[str], select: str) -> list[str]:
    """The names of cases that match one of the patterns, and none that begins with `!`.

    A pattern with `*`, `?` or `[` must match the whole name, as file names do in a shell; any
    other is text that the name contains. With only `!` patterns, all other names are kept.

    Args:
        names: of all cases.
        select: patterns, separated by commas.

    Raises:
        UsageError: when nothing is left, or there is no pattern.
    """
    patterns = [pattern.strip() for pattern in select.split(",") if pattern.strip(" !")]
    if not patterns:
        raise UsageError(f"-k {select!r}: expected text or a pattern of the names of cases")
    unwanted = [pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")]
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    for pattern in wanted:
        # A pattern that matches nothing is a misspelt one.
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


def _nearest_part(pattern: str, names: Sequence[str]) -> str | None:
    """The part of a name that is most like a pattern: patterns may be parts."""
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
