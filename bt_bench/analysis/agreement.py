"""The agreement of cases' results with the reference, exact or within tolerances."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from bt_bench.results import CaseResult, CheckReport, CompactCase, Status


class Agreement(StrEnum):
    """The agreement of results with the reference, as sentences word it."""

    EXACT = "bit for bit"
    TOLERANT = "within the suite's tolerances"


def agreement(cases: Iterable[CaseResult | CompactCase]) -> Agreement | None:
    """Return how the results of all cases agree with the reference; `None` unless all do.

    Results that were compared by an opponent's own definitions do not count as equal.

    Args:
        cases: of all variants.
    """
    checks: list[CheckReport] = []
    for case in cases:
        if case.status is not Status.OK or case.check is None or case.check.differences:
            return None
        checks.append(case.check)
    if not checks:
        return None
    tolerant = any(check.within_tolerance for check in checks)
    return Agreement.TOLERANT if tolerant else Agreement.EXACT
