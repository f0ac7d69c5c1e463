"""What one look makes of the rounds so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from scipy import stats as scipy_stats
from support.gate_rounds import ARMS, BASE, CONTROL, HEAD, make_rounds, subject, without

from bt_bench.analysis.deciding import Rules
from bt_bench.analysis.rounds import (
    SPREAD_CONFIDENCE,
    TRIMMED_SHARE,
    TRIMMING_DEGREES,
    Ledger,
    control_spread,
    judge_rounds,
)
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.analysis.verdicts import Cause, Judgement, Verdict
from bt_bench.results.metrics import DEVICE_TICK_US
from bt_bench.results.nouns import Quantity
from bt_bench.results.rounds import GateArm, GateRound, Subject

HOST = subject()
DEVICE = subject(metric="gpu_us")


def look(
    rounds: Sequence[GateRound],
    subjects: Sequence[Subject] = (HOST,),
    thresholds: Mapping[Subject, float] | None = None,
    rules: Rules | None = None,
) -> list[Judgement]:
    ledger = Ledger(subjects)
    ledger.add(rounds)
    return judge_rounds(ledger, rules or Rules(), thresholds or {}, 0.01)


def steady(count: int, base: float, head: float, control: float, one: Subject) -> list[GateRound]:
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


def test_estimate_is_of_the_log_ratios_of_rounds() -> None:
    rounds = make_rounds(20, {HOST: (100.0, 103.0, 100.0)}, noise=0.03)
    (finding,) = look(rounds)
    logs = [math.log(taken.values[HEAD][HOST] / taken.values[BASE][HOST]) for taken in rounds]
    assert finding.evidence is not None
    assert finding.evidence.estimate == pytest.approx(scipy_stats.trim_mean(logs, TRIMMED_SHARE))
    assert finding.evidence.degrees == 20 - 2 * 3 - 1 - TRIMMING_DEGREES


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
    assert after.evidence is not None
    assert before.evidence is not None
    assert after.evidence.estimate == pytest.approx(before.evidence.estimate)


def test_a_few_slow_processes_change_nothing() -> None:
    rounds = make_rounds(20, {HOST: (100.0, 100.0, 100.0)})
    for arm, at in ((HEAD, 3), (HEAD, 11), (CONTROL, 7), (BASE, 15)):
        rounds[at].values[arm][HOST] *= 3  # type: ignore[index]
    (finding,) = look(rounds)
    assert finding.verdict is Verdict.SAME
    assert finding.evidence is not None
    assert finding.evidence.margin.share == 0.02


def test_noise_widens_the_margin() -> None:
    (finding,) = look(make_rounds(20, {HOST: (100.0, 100.0, 100.0)}, noise=0.03))
    assert finding.evidence is not None
    assert finding.evidence.margin.binds == "spread"
    assert finding.evidence.margin.share > 0.03
    assert finding.is_open  # more rounds make it narrower


def test_a_moved_control_widens_the_margin() -> None:
    (finding,) = look(make_rounds(20, {HOST: (100.0, 105.0, 103.0)}))
    assert finding.evidence is not None
    assert finding.evidence.margin.share == pytest.approx(3 * 0.03, rel=0.2)
    assert finding.verdict is not Verdict.SLOWER


def test_spread_is_the_shift_or_what_noise_could_do() -> None:
    reach = scipy_stats.t.ppf((1 + SPREAD_CONFIDENCE) / 2, 15) * 0.001
    assert control_spread(Estimate(0.0001, 0.001, 15, 16)) == pytest.approx(math.expm1(reach))
    assert control_spread(Estimate(-0.05, 0.001, 15, 16)) == pytest.approx(math.expm1(0.05))


def test_short_times_have_a_floor() -> None:
    (finding,) = look(make_rounds(20, {HOST: (2.0, 2.1, 2.0)}))
    assert finding.evidence is not None
    assert finding.evidence.margin.binds == "floor"
    assert finding.evidence.margin.floor == pytest.approx(
        Quantity.GPU_US.traits.floor_us / 2.0, rel=0.01
    )
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
    assert found[0].evidence is not None
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
    (same,) = look(steady(20, 20.0, 20.0, 20.0, DEVICE), (DEVICE,))
    assert same.verdict is Verdict.SAME
    assert same.evidence is not None
    tick = DEVICE_TICK_US / math.sqrt(12) * math.sqrt(2) / 20
    assert same.evidence.error == pytest.approx(tick)
    (slower,) = look(steady(20, 20.0, 21.0, 20.0, DEVICE), (DEVICE,))
    assert slower.verdict is Verdict.SLOWER


def test_a_tick_is_no_regression() -> None:
    """A device time of two ticks more or less: far below the floor, and no rounds make it more."""
    (finding,) = look(steady(32, 3.0, 3.0 + 2 * DEVICE_TICK_US, 3.0, DEVICE), (DEVICE,))
    assert finding.verdict is Verdict.SAME


def test_a_control_that_is_far_off_invalidates() -> None:
    (finding,) = look(make_rounds(20, {HOST: (100.0, 200.0, 115.0)}))
    assert (finding.verdict, finding.cause) == (Verdict.INVALID, Cause.CONTROL_MOVED)
    assert finding.is_open
    assert finding.detail.startswith("copies of unchanged code differ by 15.")


def test_noise_alone_does_not_invalidate() -> None:
    """But nothing is called the same within a margin that only noise made so wide."""
    (equal,) = look(make_rounds(20, {HOST: (100.0, 100.0, 100.0)}, noise=0.15))
    assert (equal.verdict, equal.cause) == (Verdict.INCONCLUSIVE, Cause.WIDE_INTERVAL)
    assert "too noisy: it would need the margin of" in equal.detail
    assert equal.is_open
    (twice,) = look(make_rounds(20, {HOST: (100.0, 300.0, 100.0)}, noise=0.15))
    assert twice.verdict is Verdict.SLOWER  # a regression that noise cannot hide is not hidden


def test_details_are_clauses() -> None:
    slower, same, doubtful = (
        look(make_rounds(20, {HOST: (100.0, head, 100.0)}))[0].detail for head in (105.0, 100, 102)
    )
    assert slower.startswith("slower by 5.")
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
