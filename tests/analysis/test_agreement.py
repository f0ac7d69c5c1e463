"""Titles of reports claim that all results are right only where they are."""

from __future__ import annotations

import pytest
from support.factories import make_case, make_failed_case

from bt_bench.analysis.agreement import Agreement, agreement
from bt_bench.results.run.case import CaseResult, CheckReport


def checked(**changes: list[str]) -> CaseResult:
    check = CheckReport(steps=1, buffers=["logits"], **changes)
    return make_case().model_copy(update={"check": check})


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], Agreement.EXACT),
        ([checked(within_tolerance=["logits"])], Agreement.TOLERANT),
        ([make_failed_case()], None),
        ([checked().model_copy(update={"check": None})], None),
        ([checked(differences=["rows_kept"])], None),
    ],
    ids=["exact", "tolerant", "failed", "not recorded", "by other definitions"],
)
def test_one_case_decides_for_all(others: list[CaseResult], expected: Agreement | None) -> None:
    assert agreement([checked(), *others]) is expected


def test_nothing_is_claimed_of_no_cases() -> None:
    assert agreement([]) is None
