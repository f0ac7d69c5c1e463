"""What every kind of comparison has in common, from an outcome to a judgement."""

from __future__ import annotations

import math

import pytest

from bt_bench.analysis.deciding import Correction
from bt_bench.analysis.judging import (
    MAX_SPREAD,
    SPREAD_FACTOR,
    WHY_NOT_TESTED,
    Entry,
    Settled,
    control_moved,
    exact,
    judge_entries,
    margin_of,
    settled,
)
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.analysis.verdicts import Cause, Margin, Verdict
from bt_bench.results import COUNTED, metric_named
from bt_bench.suites.block_tables import operations as ops

HOST = metric_named("host_us")


def entry(percent: float, family: object = None, error: float = 0.001) -> Entry:
    return Entry(
        *(ops.STEP, "case", HOST, "base", "other", 100.0, 100.0 * (1 + percent / 100)),
        outcome=Estimate(math.log1p(percent / 100), error, 7, 8),
        margin=Margin(0.02, None, 0.002),
        family=family,
    )


def test_families_are_corrected_apart() -> None:
    # At +3.2 % with this error p is some 0.003: enough alone, and not among a hundred.
    doubtful = entry(3.2, "few", error=0.0031)
    crowd = [entry(0.0, "many", error=0.0031) for _ in range(99)]
    alone, *_ = judge_entries([doubtful, *crowd], Correction.HOLM, 0.01)
    assert alone.verdict is Verdict.SLOWER
    doubtful.family = "many"
    drowned, *_ = judge_entries([doubtful, *crowd], Correction.HOLM, 0.01)
    assert drowned.verdict is Verdict.INCONCLUSIVE
    assert drowned.evidence is not None
    assert drowned.evidence.tests == 100


def test_judgements_keep_the_order_of_the_entries() -> None:
    missing = Entry(ops.STEP, "gone", HOST, "base", "other")
    missing.outcome = Settled(Verdict.MISSING, Cause.NO_METRIC, "why")
    found = judge_entries([entry(50.0, 1), missing, entry(0.0, 2)], Correction.HOLM, 0.01)
    verdicts = [each.verdict for each in found]
    assert verdicts == [Verdict.SLOWER, Verdict.MISSING, Verdict.SAME]
    assert (found[1].case, found[1].detail, found[1].evidence) == ("gone", "why", None)


def test_what_cannot_be_tested_says_so_and_is_in_no_family() -> None:
    endless = entry(50.0)
    endless.outcome = Estimate(math.inf, 0.001, 7, 8)
    found, other = judge_entries([endless, entry(50.0)], Correction.HOLM, 0.01)
    assert (found.verdict, found.cause) == (Verdict.INVALID, Cause.IMPOSSIBLE)
    assert (found.detail, found.ratio, found.evidence) == (WHY_NOT_TESTED, None, None)
    assert other.verdict is Verdict.SLOWER
    assert other.evidence is not None
    assert other.evidence.tests == 1


def test_the_margin_has_its_parts_as_shares_of_the_base() -> None:
    margin = margin_of(HOST, 10.0, 0.02, 0.01)
    assert (margin.configured, margin.spread) == (0.02, SPREAD_FACTOR * 0.01)
    assert margin.floor == pytest.approx(HOST.floor / 10)
    assert margin_of(HOST, 0.0, 0.02, None) == Margin(0.02, None, math.inf)
    gap = metric_named("gap_us")
    assert margin_of(gap, 0.0, 0.02, None).floor == 1  # of what is added to a gap of zero


def test_a_control_that_moved_is_refused_unless_the_floor_hides_it() -> None:
    refusal = control_moved(Margin(0.02, 0.3, 0.01), "1 us")
    assert refusal is not None
    assert (refusal.verdict, refusal.cause) == (Verdict.INVALID, Cause.CONTROL_MOVED)
    assert "differ by 1 us, which would need a margin of 30 %" in refusal.detail
    assert control_moved(Margin(0.02, MAX_SPREAD, 0.01), "") is None
    assert control_moved(Margin(0.02, 0.3, 0.1), "") is None
    assert control_moved(Margin(0.02, None, 0.1), "") is None


@pytest.mark.parametrize(
    ("base", "other", "verdict", "ratio"),
    [
        (2.0, 3.0, Verdict.SLOWER, 1.5),
        (2.0, 1.0, Verdict.FASTER, 0.5),
        (2.0, 2.0, Verdict.SAME, 1.0),
        (0.0, 0.0, Verdict.SAME, 1.0),
        (0.0, 4.0, Verdict.SLOWER, None),
    ],
)
def test_counts(base: float, other: float, verdict: Verdict, ratio: float | None) -> None:
    counted = Entry(ops.STEP, "case", COUNTED["spills"], "base", "other", base, other)
    counted.outcome = exact(base, other, "in gather")
    found = settled(counted)
    assert (found.verdict, found.cause, found.ratio) == (verdict, Cause.EXACT, ratio)


def test_what_is_incomplete_is_a_mistake_of_the_caller() -> None:
    without = entry(1.0)
    without.margin = None
    with pytest.raises(TypeError, match="step/case has an estimate but no margin"):
        judge_entries([without], Correction.HOLM, 0.01)
    with pytest.raises(TypeError, match="step/case has None, which needs a test"):
        settled(Entry(ops.STEP, "case", HOST, "base", "other"))
