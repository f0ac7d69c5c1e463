"""What one look makes of the rounds so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats
from support.gate_rounds import ARMS, BASE, CONTROL, HEAD, make_rounds, subject, without

from bt_bench.analysis.deciding import Rules
from bt_bench.analysis.rounds import (
    APART,
    PAIRED,
    PAIRED_FLOOR_US,
    SPREAD_CONFIDENCE,
    Estimator,
    Ledger,
    judge_rounds,
)
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.analysis.verdicts import Cause, Judgement, Verdict
from bt_bench.results.gate.rounds import GateArm, GateRound, SeriesKey
from bt_bench.results.run.metrics import DEVICE_TICK_US
from bt_bench.results.run.nouns import Method, Quantity

HOST = subject()
DEVICE = subject(metric="gpu_us")


def look(
    rounds: Sequence[GateRound],
    subjects: Sequence[SeriesKey] = (HOST,),
    thresholds: Mapping[SeriesKey, float] | None = None,
    rules: Rules | None = None,
    way: Estimator = PAIRED,
) -> list[Judgement]:
    ledger = Ledger(subjects)
    ledger.add(rounds)
    apart = {} if way is PAIRED else {"fused": "it sets a global flag"}
    return judge_rounds(ledger, rules or Rules(), thresholds or {}, 0.01, apart=apart)


def steady(count: int, base: float, head: float, control: float, one: SeriesKey) -> list[GateRound]:
    """Rounds that all have the same values."""
    values = {BASE: {one: base}, HEAD: {one: head}, CONTROL: {one: control}}
    return [GateRound(ARMS, values)] * count


@pytest.mark.parametrize(
    ("head", "verdict"),
    [(100.0, Verdict.SAME), (105.0, Verdict.SLOWER), (95.0, Verdict.FASTER)],
)
def test_verdicts(head: float, verdict: Verdict) -> None:
    (finding,) = look(make_rounds(20, {HOST: (100.0, head, 100.0)}))
    assert finding.verdict is verdict
    assert finding.base_value == pytest.approx(100, rel=0.01)
    assert finding.other_value == pytest.approx(head, rel=0.01)
    assert finding.is_final == (verdict is not Verdict.SAME)


def test_paired_estimates_are_against_base_and_control() -> None:
    rounds = make_rounds(20, {HOST: (100.0, 103.0, 101.0)}, noise=0.03)
    (finding,) = look(rounds)
    logs = [
        math.log(taken.values[HEAD][HOST])
        - (math.log(taken.values[BASE][HOST]) + math.log(taken.values[CONTROL][HOST])) / 2
        for taken in rounds
    ]
    assert finding.evidence.estimate == pytest.approx(scipy_stats.trim_mean(logs, 0.1))
    assert finding.evidence.degrees == 20 - 2 * 2 - 1 - PAIRED.fewer_degrees
    assert "apart" not in finding.detail


def test_estimates_of_what_was_measured_apart_are_against_the_base() -> None:
    rounds = make_rounds(20, {HOST: (100.0, 173.0, 101.0)}, noise=0.03)
    (finding,) = look(rounds, way=APART)
    logs = [math.log(taken.values[HEAD][HOST] / taken.values[BASE][HOST]) for taken in rounds]
    assert finding.evidence.estimate == pytest.approx(scipy_stats.trim_mean(logs, 0.15))
    assert finding.evidence.degrees == 20 - 2 * 3 - 1 - APART.fewer_degrees
    assert finding.detail.endswith(
        "after 20 rounds; measured apart, so the interval is wider: it sets a global flag"
    )


def test_a_pair_has_the_least_variance_and_is_orthogonal_to_its_control() -> None:
    draws = np.random.default_rng(0).normal(size=(3, 100_000))
    logs = dict(zip(ARMS, draws, strict=True))
    change, control = PAIRED.change(logs), logs[CONTROL] - logs[BASE]
    assert change.var() == pytest.approx(1.5, rel=0.02)
    assert APART.change(logs).var() == pytest.approx(2, rel=0.02)
    assert np.corrcoef(change, control)[0, 1] == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("rounds", [12, 24])
def test_both_ends_of_the_rounds_are_left_out(rounds: int) -> None:
    values = np.random.default_rng(0).normal(size=rounds)
    for way in (PAIRED, APART):
        before = way.estimate(values)
        values[values.argmax()] = 50
        values[values.argmin()] = -50
        after = way.estimate(values)
        assert before is not None
        assert after is not None
        assert after == before


def test_drift_that_both_arms_share_cancels() -> None:
    rounds = make_rounds(20, {HOST: (100.0, 105.0, 100.0)})
    drifting = [
        GateRound(
            taken.order,
            {
                arm: {one: value * (1 + index / 4) for one, value in row.items()}
                for arm, row in taken.values.items()
            },
        )
        for index, taken in enumerate(rounds)
    ]
    before, after = look(rounds)[0], look(drifting)[0]
    assert after.verdict is Verdict.SLOWER
    assert after.evidence.estimate == pytest.approx(before.evidence.estimate)


def test_a_few_slow_processes_change_nothing() -> None:
    rounds = make_rounds(20, {HOST: (100.0, 100.0, 100.0)})
    for arm, at in ((HEAD, 3), (HEAD, 11), (CONTROL, 7), (BASE, 15)):
        rounds[at].values[arm][HOST] *= 3  # type: ignore[index]
    (finding,) = look(rounds)
    assert finding.verdict is Verdict.SAME
    assert finding.evidence.margin.share == 0.02


def test_noise_of_processes_that_are_replicates_is_in_the_error_alone() -> None:
    (finding,) = look(make_rounds(20, {HOST: (100.0, 100.0, 100.0)}, noise=0.03, seed=1))
    assert finding.evidence.margin.share == 0.02
    assert finding.evidence.systematic.copies == 0
    assert finding.is_open
    assert finding.evidence.detectable > 0.05


def test_noise_widens_the_interval_of_what_was_measured_apart() -> None:
    rounds = make_rounds(20, {HOST: (100.0, 100.0, 100.0)}, noise=0.03)
    (finding,) = look(rounds, way=APART)
    assert finding.evidence.margin.share == 0.02
    assert finding.evidence.needed > 0.03
    assert finding.is_open  # more rounds make it narrower


def test_a_moved_control_widens_the_interval() -> None:
    rounds = make_rounds(20, {HOST: (100.0, 105.0, 103.0)})
    for way in (PAIRED, APART):
        (finding,) = look(rounds, way=way)
        assert finding.evidence.margin.share == 0.02
        assert finding.evidence.needed == pytest.approx(3 * 0.03, rel=0.3)
        assert finding.verdict is not Verdict.SLOWER


def test_spread_of_a_pair_is_the_shift_that_noise_does_not_explain() -> None:
    reach = scipy_stats.t.ppf((1 + SPREAD_CONFIDENCE) / 2, 15) * 0.001
    assert PAIRED.spread(Estimate(0.9 * reach, 0.001, 15, 16)) == 0
    certain = math.expm1(0.05 - reach)
    assert PAIRED.spread(Estimate(-0.05, 0.001, 15, 16)) == pytest.approx(certain)


def test_spread_of_what_was_measured_apart_is_the_shift_or_what_noise_could_do() -> None:
    reach = scipy_stats.t.ppf((1 + SPREAD_CONFIDENCE) / 2, 15) * 0.001
    assert APART.spread(Estimate(0.0001, 0.001, 15, 16)) == pytest.approx(math.expm1(reach))
    assert APART.spread(Estimate(-0.05, 0.001, 15, 16)) == pytest.approx(math.expm1(0.05))


@pytest.mark.parametrize(
    ("way", "base", "head", "floor_us"),
    [(PAIRED, 1.0, 1.02, PAIRED_FLOOR_US), (APART, 2.0, 2.1, Quantity.GPU_US.traits.floor_us)],
    ids=["paired", "apart"],
)
def test_short_times_have_a_floor(
    way: Estimator, base: float, head: float, floor_us: float
) -> None:
    (finding,) = look(make_rounds(20, {HOST: (base, head, base)}), way=way)
    assert finding.evidence.margin.binds == "floor"
    assert finding.evidence.margin.floor == pytest.approx(floor_us / base, rel=0.01)
    assert finding.verdict is Verdict.SAME
    assert not finding.is_open


def test_thresholds_of_single_subjects() -> None:
    other = subject("other")
    rounds = make_rounds(20, dict.fromkeys((HOST, other), (100.0, 105.0, 100.0)))
    found = look(rounds, (HOST, other), {other: 0.08})
    assert [finding.verdict for finding in found] == [Verdict.SLOWER, Verdict.SAME]


@pytest.mark.parametrize(
    ("arm", "keep", "verdict", "cause"),
    [
        (BASE, 0, Verdict.MISSING, Cause.NO_CASE),
        (HEAD, 0, Verdict.MISSING, Cause.NO_CASE),
        (CONTROL, 0, Verdict.INVALID, Cause.INSUFFICIENT),
        (HEAD, 9, Verdict.INVALID, Cause.INSUFFICIENT),
        (HEAD, 10, Verdict.SAME, Cause.WITHIN_MARGIN),
        (CONTROL, 15, Verdict.SAME, Cause.WITHIN_MARGIN),
    ],
)
def test_absent_values(arm, keep, verdict, cause) -> None:
    rounds = make_rounds(20, {HOST: (100.0, 100.0, 100.0)}, noise=0.001)
    (finding,) = look(without(rounds, arm, HOST, keep))
    assert (finding.verdict, finding.cause) == (verdict, cause)


def test_an_absent_metric_of_a_case_that_is_there() -> None:
    rounds = make_rounds(20, dict.fromkeys((HOST, DEVICE), (100.0, 100.0, 100.0)))
    found = look(without(rounds, HEAD, DEVICE, 0), (HOST, DEVICE))
    assert (found[1].verdict, found[1].cause) == (Verdict.MISSING, Cause.NO_METRIC)
    assert found[1].base_value is not None
    assert found[1].other_value is None


def test_what_cannot_be_tested_is_not_in_the_family() -> None:
    rounds = make_rounds(20, dict.fromkeys((HOST, DEVICE), (100.0, 105.0, 100.0)))
    found = look(without(rounds, HEAD, DEVICE, 0), (HOST, DEVICE))
    assert found[0].evidence.tests == 1


def test_too_few_rounds_for_an_interval() -> None:
    (finding,) = look(make_rounds(2, {HOST: (100.0, 150.0, 100.0)}))
    assert (finding.verdict, finding.cause) == (Verdict.INCONCLUSIVE, Cause.TOO_FEW)
    assert finding.is_open


@pytest.mark.parametrize("arm", ARMS)
def test_a_time_of_zero_has_no_ratio(arm) -> None:
    rounds = make_rounds(20, {HOST: (100.0, 100.0, 100.0)})
    rounds[5].values[arm][HOST] = 0.0  # type: ignore[index]
    (finding,) = look(rounds)
    assert (finding.verdict, finding.cause) == (Verdict.INVALID, Cause.NOT_POSITIVE)


def test_a_host_clock_that_stands_still_is_not_believed() -> None:
    for values in ((100.0, 110.0, 100.0), (100.0, 100.0, 100.0), (0.1, 0.3, 0.7)):
        (finding,) = look(steady(20, *values, HOST))
        assert (finding.verdict, finding.cause) == (Verdict.INVALID, Cause.NO_VARIANCE)


def test_a_device_clock_may_repeat_itself() -> None:
    """Where values are on its ticks: those of a process each, and those that can be zero."""
    (same,) = look(steady(20, 20.0, 20.0, 20.0, DEVICE), (DEVICE,), way=APART)
    assert same.verdict is Verdict.SAME
    tick = DEVICE_TICK_US / math.sqrt(12) * math.sqrt(2) / 20
    assert same.evidence.error == pytest.approx(tick)
    (slower,) = look(steady(20, 20.0, 21.0, 20.0, DEVICE), (DEVICE,), way=APART)
    assert slower.verdict is Verdict.SLOWER
    gap = subject(metric="gap_us")
    (none,) = look(steady(20, 0.0, 0.0, 0.0, gap), (gap,))
    assert none.verdict is not Verdict.INVALID
    (constant,) = look(steady(20, 20.0, 20.0, 20.0, DEVICE), (DEVICE,))
    assert constant.cause is Cause.NO_VARIANCE


def test_a_tick_is_no_regression() -> None:
    """A device time of two ticks more or less: far below the floor, and no rounds make it more."""
    rounds = steady(32, 3.0, 3.0 + 2 * DEVICE_TICK_US, 3.0, DEVICE)
    (finding,) = look(rounds, (DEVICE,), way=APART)
    assert finding.verdict is Verdict.SAME


def test_the_tick_that_rounds_have_seen_counts_and_not_an_assumed_one() -> None:
    rounds = [
        replace(taken, ticks={Method.PROFILER: 1.024})
        for taken in steady(20, 20.0, 20.0, 20.0, DEVICE)
    ]
    (found,) = look(rounds, (DEVICE,), way=APART)
    assert found.evidence.error == pytest.approx(1.024 / math.sqrt(12) * math.sqrt(2) / 20)


def test_a_control_that_is_far_off_hides_what_it_could_and_no_more() -> None:
    for way in (PAIRED, APART):
        hidden, beyond = (
            look(make_rounds(20, {HOST: (100.0, head, 115.0)}), way=way)[0]
            for head in (125.0, 200.0)
        )
        assert (hidden.verdict, beyond.verdict) == (Verdict.INCONCLUSIVE, Verdict.SLOWER)
        assert hidden.is_open
        assert "copies of unchanged code differ by 1" in hidden.detail


def test_noise_alone_does_not_invalidate() -> None:
    """But nothing is called the same within what only noise made so wide."""
    (equal,) = look(make_rounds(20, {HOST: (100.0, 100.0, 100.0)}, noise=0.15), way=APART)
    assert (equal.verdict, equal.cause) == (Verdict.INCONCLUSIVE, Cause.WIDE_INTERVAL)
    assert "would have been found; copies of unchanged code differ by" in equal.detail
    assert equal.is_open
    for way in (PAIRED, APART):
        (twice,) = look(make_rounds(20, {HOST: (100.0, 300.0, 100.0)}, noise=0.15), way=way)
        assert twice.verdict is Verdict.SLOWER  # a regression that noise cannot hide is not hidden


def test_details_are_clauses() -> None:
    slower, same, doubtful = (
        look(make_rounds(20, {HOST: (100.0, head, 100.0)}, seed=1))[0].detail
        for head in (105.0, 100, 102)
    )
    assert slower.startswith("slower by 4.9")
    assert slower.endswith("beyond the margin of 2 % (as configured) after 20 rounds")
    assert same == "within the margin of 2 % after 20 rounds"
    assert "may be within or beyond the margin of 2 %" in doubtful


@pytest.mark.parametrize("arm", [BASE, HEAD, CONTROL])
@pytest.mark.parametrize("value", [5e-324, 1e-12, 1e13, 1e308, math.inf])
@pytest.mark.parametrize("count", [1, 20])
def test_a_value_that_no_clock_measured_is_invalid_and_hides_no_other(
    arm: GateArm, value: float, count: int
) -> None:
    other = subject("other")
    rounds = make_rounds(20, {HOST: (100.0, 100.0, 100.0), other: (100.0, 150.0, 100.0)})
    spoiled = [
        replace(taken, values=taken.values | {arm: dict(taken.values[arm]) | {HOST: value}})
        if index < count
        else taken
        for index, taken in enumerate(rounds)
    ]
    broken, slower = look(spoiled, [HOST, other])
    assert (broken.verdict, broken.cause) == (Verdict.INVALID, Cause.IMPOSSIBLE)
    assert broken.detail == f"the {arm.value} has a time that no clock can have measured"
    assert slower.verdict is Verdict.SLOWER
