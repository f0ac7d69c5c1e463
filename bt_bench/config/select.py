"""`-k`: keeps the cases with matching names."""

from __future__ import annotations

from collections.abc import Sequence

from bt_bench.base import select_names
from bt_bench.config.spec import CaseSpec


def select_cases(cases: Sequence[CaseSpec], select: str) -> list[CaseSpec]:
    """Return the cases that `select_names` keeps.

    Raises:
        UsageError: if nothing is left, or there is no pattern.
    """
    kept = set(select_names([case.name for case in cases], select))
    return [case for case in cases if case.name in kept]
