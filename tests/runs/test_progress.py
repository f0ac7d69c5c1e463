"""What is told of a case when it is stored."""

from __future__ import annotations

import pytest

from bt_bench.results.run.case import StopReason
from bt_bench.runs.progress import CaseReport


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (
            CaseReport("step/one", rounds=96, stopped=StopReason.PRECISE, half_width_percent=0.841),
            "ok, 96 rounds (precise), ± 0.84 %",
        ),
        (CaseReport("step/one", ["a", "b"]), "FAILED: a, b"),
        (
            CaseReport("step/one", ["a"], ["b"], 48, StopReason.TIME),
            "FAILED: a, INSUFFICIENT: b, 48 rounds (time is up)",
        ),
        (CaseReport("step/one", unsupported=["a"]), "ok, unsupported: a"),
        (CaseReport("step/one", left_out=["a"]), "ok, not run: a"),
    ],
)
def test_how_a_case_ended(report, text):
    assert report.is_ok == (text in ("ok, 96 rounds (precise), ± 0.84 %", "ok, not run: a"))
    assert report.text == f"step/one: {text}"
