"""What every kind of comparison has in common, from an outcome to a judgement."""

from __future__ import annotations

import math

import pytest

from bt_bench.analysis.deciding import Correction
from bt_bench.analysis.judging import (
    WHY_NOT_TESTED,
    Entry,
    Settled,
    exact,
    judge_entries,
    margin_of,
    overall_ratios,
    settled,
    systematic_of,
)
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.analysis.verdicts import Cause, Margin, Systematic, Verdict
from bt_bench.results import COUNTED, metric_named
from bt_bench.suites.block_tables import operations as ops

HOST = metric_named("host_us")


def entry(percent: float, family: object = None, error: float = 0.001) -> Entry:
    return Entry(
        *(ops.STEP, "case", HOST, "base", "other", 100.0, 100.0 * (1 + percent / 100)),
        outcome=Estimate(math.log1p(percent / 100), error, 7, 8),
        margin=Margin(0.02, 0.002),
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
    assert other.evidence.tests == 1


def test_the_margin_has_its_parts_as_shares_of_the_base() -> None:
    margin = margin_of(HOST, 10.0, 0.02)
    assert margin.configured == 0.02
    assert margin.floor == pytest.approx(HOST.floor / 10)
    assert margin_of(HOST, 0.0, 0.02) == Margin(0.02, math.inf)
    gap = metric_named("gap_us")
    assert margin_of(gap, 0.0, 0.02).floor == 1  # of what is added to a gap of zero


def test_an_estimate_may_be_off_by_three_times_what_copies_differ_by() -> None:
    assert systematic_of(0.01) == Systematic(copies=0.03)
    assert systematic_of(None) == Systematic()


@pytest.mark.parametrize(
    ("systematic", "error", "detail"),
    [
        (Systematic(), 0.01, "a slowdown of 8.3 % (8.303 µs) would have been found"),
        (
            Systematic(copies=0.3),
            0.001,
            "a slowdown of 30.8 % (30.78 µs) would have been found; copies of unchanged code "
            "differ by 10 %",
        ),
        (
            Systematic(slowed=0.2),
            0.001,
            "a slowdown of 25.3 % (25.33 µs) would have been found; the host may have made it "
            "22 % slower",
        ),
        (
            Systematic(slowed=1.0, sped=1.0),
            1.0,
            "no slowdown below 1000 % would have been found; the host may have made it 172 % "
            "slower or 63 % faster",
        ),
    ],
)
def test_noise_tells_what_would_have_been_found_and_why_no_less(
    systematic: Systematic, error: float, detail: str
) -> None:
    doubtful = entry(2.0, error=error)
    doubtful.systematic = systematic
    (found,) = judge_entries([doubtful], Correction.HOLM, 0.01)
    limit = "+2.0 % may be within or beyond the margin of 2 % (as configured)"
    assert (found.verdict, found.detail) == (Verdict.INCONCLUSIVE, f"{limit}; {detail}")


def test_means_of_counts_have_no_interval() -> None:
    counted = [settled(_counted(*values)) for values in ((2.0, 3.0), (2.0, 2.0), (4.0, 3.0))]
    times = judge_entries([entry(5.0), entry(6.0)], Correction.HOLM, 0.01)
    of_times, of_counts = overall_ratios([*times, *counted])
    assert None not in (of_times.low, of_times.high)
    assert (of_counts.metric, of_counts.cases) == ("spills", 3)
    assert (of_counts.low, of_counts.high) == (None, None)


def _counted(base: float, other: float) -> Entry:
    found = Entry(ops.STEP, "case", COUNTED["spills"], "base", "other", base, other)
    found.outcome = exact(base, other, "in gather")
    return found


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
    found = settled(_counted(base, other))
    assert (found.verdict, found.cause, found.ratio) == (verdict, Cause.EXACT, ratio)


def test_what_is_incomplete_is_a_mistake_of_the_caller() -> None:
    without = entry(1.0)
    without.margin = None
    with pytest.raises(TypeError, match="step/case has an estimate but no margin"):
        judge_entries([without], Correction.HOLM, 0.01)
    with pytest.raises(TypeError, match="step/case has None, which needs a test"):
        settled(Entry(ops.STEP, "case", HOST, "base", "other"))
