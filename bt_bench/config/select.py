"""`-k`: keeps the cases whose names match."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from bt_bench.config.spec import CaseSpec
from bt_bench.errors import UsageError

MAX_LISTED = 20


def select_cases(cases: Sequence[CaseSpec], select: str) -> list[CaseSpec]:
    """Keeps cases that match one of the comma-separated patterns, and none that begins with `!`.

    A pattern with `*`, `?` or `[` must match the whole name, as file names do in a shell; any
    other is text that the name contains. With only `!` patterns, all other cases are kept.

    Raises:
        UsageError: when nothing is left, or there is no pattern.
    """
    patterns = [pattern.strip() for pattern in select.split(",") if pattern.strip(" !")]
    if not patterns:
        raise UsageError(f"-k {select!r}: expected text or a pattern; see the names in --dry-run")
    unwanted = [pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")]
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    for pattern in wanted:
        # A pattern that matches nothing is a misspelt one.
        if not any(_matches(case.name, pattern) for case in cases):
            raise UsageError(f"-k {pattern!r}: no case matches; the cases are:\n{_listed(cases)}")
    kept = [
        case
        for case in cases
        if any(_matches(case.name, pattern) for pattern in wanted)
        and not any(_matches(case.name, pattern) for pattern in unwanted)
    ]
    if not kept:
        raise UsageError(f"-k {select!r}: no case is left; the cases are:\n{_listed(cases)}")
    return kept


def _matches(name: str, pattern: str) -> bool:
    if any(wildcard in pattern for wildcard in "*?["):
        return fnmatchcase(name, pattern)
    return pattern in name


def _listed(cases: Sequence[CaseSpec]) -> str:
    lines = [f"  {case.name}" for case in cases[:MAX_LISTED]]
    if len(cases) > MAX_LISTED:
        lines.append(f"  … and {len(cases) - MAX_LISTED} more")
    return "\n".join(lines)
