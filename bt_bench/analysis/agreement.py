"""Decide whether all results of some cases are right, and how exactly they were compared."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from bt_bench.results import CheckReport, Status


class Agreement(StrEnum):
    """Name how results agree with the reference's, as sentences put it."""

    EXACT = "bit for bit"
    TOLERANT = "within the suite's tolerances"


class Checked(Protocol):
    """Hold how a case ended, and its check."""

    @property
    def status(self) -> Status:
        """Return how it ended."""
        ...

    @property
    def check(self) -> CheckReport | None:
        """Return what was compared with the reference; `None` if that is not known."""
        ...


def agreement(cases: Iterable[Checked]) -> Agreement | None:
    """Return how the results of all cases agree with the reference's; `None` if not all do.

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
