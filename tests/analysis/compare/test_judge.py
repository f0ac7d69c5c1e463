"""Verdicts on results, and why they are what they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.factories import (
    make_calibration,
    make_case,
    make_environment,
    make_failed_case,
    make_gpu,
    make_launches,
    make_measurement,
    make_result,
    make_rounds,
    make_workload,
)

from bt_bench.analysis.compare.entries import Matchup, Side
from bt_bench.analysis.compare.judge import Criteria, judge, not_compared
from bt_bench.analysis.compare.selection import Selection
from bt_bench.analysis.deciding import Correction, Rules, exit_code
from bt_bench.analysis.statistics.estimates import LARGEST_LOG, ratio_of
from bt_bench.analysis.verdicts import NO_SYSTEMATIC, Cause, Judged, Judgement, Verdict
from bt_bench.base.errors import ExitCode, NotComparableError, UsageError
from bt_bench.report.formats import FORMATS
from bt_bench.results.files.compact import compacted
from bt_bench.results.run.calibration import PlainCopies
from bt_bench.results.run.case import CaseResult, CompiledKernel, ControlSpread
from bt_bench.results.run.conditions import Condition, Harm
from bt_bench.results.run.nouns import LaunchPath, Load, Method, Quantity, ReasonCode, Status
from bt_bench.results.run.plan import Plan
from bt_bench.results.run.result import VariantResult
from bt_bench.results.run.series import series_of
from bt_bench.suites.block_tables import operations as ops

ROUNDS = 48
HOST = series_of(Quantity.HOST_US)


def noisy(value: float, seed: int = 0, rounds: int = ROUNDS, noise: float = 0.002) -> Any:
    rng = np.random.default_rng(seed)
    return [[float(sample)] for sample in value * np.exp(noise * rng.standard_normal(rounds))]


def timed(value: float, name: str = "small", seed: int = 0, **fields: Any) -> CaseResult:
    """A case with its host time."""
    return make_case(name, samples={HOST: noisy(value, seed)}, **fields)


def judged(
    base: Sequence[CaseResult],
    other: Sequence[CaseResult],
    criteria: Criteria | None = None,
    *,
    one_run: bool = True,
    **fields: Any,
) -> Judged:
    first = make_result("baseline", base, **fields)
    second = make_result("fused", other, run_id=first.run_id if one_run else "later", **fields)
    return judge_results([first, second], criteria)


def judge_results(results: Sequence[VariantResult], criteria: Criteria | None = None) -> Judged:
    base, *others = (Side(f"{result.variant.name}", compacted(result)) for result in results)
    return judge([Matchup(base, other) for other in others], criteria or Criteria())


def only(found: Judged) -> Judgement:
    (judgement,) = found.judgements
    return judgement


@pytest.mark.parametrize(
    ("factor", "verdict", "cause"),
    [
        (1.04, Verdict.SLOWER, Cause.BEYOND_MARGIN),
        (0.96, Verdict.FASTER, Cause.BEYOND_MARGIN),
        (1.001, Verdict.SAME, Cause.WITHIN_MARGIN),
        (1.02, Verdict.INCONCLUSIVE, Cause.WIDE_INTERVAL),
    ],
)
def test_verdicts_of_one_run(factor: float, verdict: Verdict, cause: Cause) -> None:
    found = only(judged([timed(50.0, seed=1)], [timed(50.0 * factor, seed=2)]))
    assert (found.verdict, found.cause, found.advisory) == (verdict, cause, False)
    assert found.ratio == pytest.approx(factor, rel=0.002)
    low, ratio, high = found.low or 0.0, found.ratio or 0.0, found.high or 0.0
    assert 0 < low < ratio < high
    assert (found.base, found.other) == ("baseline", "fused")
    assert (found.metric, found.unit) == ("host_us", "us")
    assert (found.evidence.margin.share, found.evidence.margin.binds) == (0.02, "configured")
    assert (found.evidence.degrees, found.evidence.tests) == (7, 1)


@pytest.mark.parametrize(
    ("plan", "options"),
    [
        (
            Plan(instances=8, precision_percent=1, case_seconds=20),
            "--set plan.instances=32 --set plan.precision_percent=0.5 --set plan.case_seconds=80",
        ),
        (
            Plan(instances=4, precision_percent=0, rounds=200, case_seconds=5),
            "--set plan.instances=16 --set plan.rounds=800 --set plan.case_seconds=20",
        ),
    ],
)
def test_undecided_times_say_how_to_narrow_them(plan: Plan, options: str) -> None:
    cases = [timed(50.0, seed=1)], [timed(51.0, seed=2)]
    told = [fact for fact in judged(*cases, plan=plan).facts if "INCONCLUSIVE" in fact]
    assert len(told) == 1
    assert f"such as {options}: that takes up to four times the memory" in told[0]
    decided = judged([timed(50.0, seed=1)], [timed(50.0, seed=2)], plan=plan)
    between = judged(*cases, plan=plan, one_run=False)
    assert not any("INCONCLUSIVE" in fact for fact in (*decided.facts, *between.facts))


def test_too_few_rounds_say_how_to_take_enough() -> None:
    found = judged(*([make_case(samples={HOST: noisy(50.0, seed, rounds=4)})] for seed in (1, 2)))
    assert only(found).cause is Cause.TOO_FEW
    assert any("--set plan.rounds=200 --set plan.instances=8" in fact for fact in found.facts)


def test_drift_that_hits_both_sides_cancels() -> None:
    drift = np.linspace(1.0, 1.5, ROUNDS)
    rows = {
        seed: [[row[0] * by] for row, by in zip(noisy(50.0, seed), drift, strict=True)]
        for seed in (1, 2)
    }
    cases = [make_case(samples={HOST: rows[seed]}) for seed in (1, 2)]
    assert only(judged([cases[0]], [cases[1]])).verdict is Verdict.SAME
    apart = only(judged([cases[0]], [cases[1]], one_run=False))
    assert apart.verdict is Verdict.INCONCLUSIVE


def test_rounds_pair_by_their_place_in_the_log() -> None:
    values = [row[0] * (1 + index % 7) for index, row in enumerate(noisy(50.0, 1))]
    slower = [value * 1.1 * row[0] for value, row in zip(values, noisy(1.0, 2), strict=True)]
    left = make_measurement(HOST, [[v] for v in values], list(range(ROUNDS)))
    right = make_measurement(HOST, [[v] for v in slower[3:]], list(range(3, ROUNDS)))
    cases = [
        make_case(rounds=make_rounds(ROUNDS)).model_copy(update={"measurements": [each]})
        for each in (left, right)
    ]
    found = only(judged([cases[0]], [cases[1]]))
    assert found.ratio == pytest.approx(1.1, rel=0.002)
    assert found.verdict is Verdict.SLOWER


def test_no_clock_differs_by_the_same_in_all_rounds() -> None:
    """As in the gate: rounds that were copied are not believed, equal or not."""
    for factor in (1.0, 1.5):
        base = make_case(samples={HOST: noisy(50.0, 1)}, rounds=make_rounds(ROUNDS))
        other = make_case(
            samples={HOST: [[factor * row[0]] for row in noisy(50.0, 1)]},
            rounds=make_rounds(ROUNDS),
        )
        found = only(judged([base], [other]))
        assert (found.verdict, found.cause) == (Verdict.INVALID, Cause.NO_VARIANCE)
        assert found.detail == (
            "other side and base differ by the same in all rounds; no real clock does that"
        )


def test_a_coarse_and_quiet_clock_is_believed() -> None:
    """Medians of clusters coincide where few values occur, but the rounds differ."""
    rng = np.random.default_rng(5)
    base, other = (
        make_case(
            samples={HOST: np.round(rng.normal(0.9, 0.01, (936, 1)), 2).tolist()},
            rounds=make_rounds(936, 4),
        )
        for _ in range(2)
    )
    assert only(judged([base], [other])).verdict is Verdict.SAME


STAGE = series_of(Quantity.STAGE_US)
DIRECT = series_of(Quantity.HOST_US, launch_path=LaunchPath.DIRECT)
COMPILED = series_of(Quantity.HOST_US, launch_path=LaunchPath.COMPILED)


def judged_sum(base: Any, other: Any, *metrics: str) -> Judgement:
    found = judged([base], [other], Criteria(metrics=metrics))
    return next(each for each in found.judgements if each.metric == metrics[0])


def taken(seed: int, *series: Any) -> CaseResult:
    rows = {each: noisy(20.0, seed + place) for place, each in enumerate(series)}
    return make_case(samples=rows, rounds=make_rounds(ROUNDS))


def test_a_sum_lacks_what_a_side_did_not_measure() -> None:
    base, other = taken(1, STAGE, COMPILED), taken(5, STAGE, COMPILED, DIRECT)
    for metrics in (
        ("host_us/compiled+host_us/direct",),
        ("host_us/compiled+host_us/direct", "host_us/compiled"),
    ):
        found = judged_sum(base, other, *metrics)
        assert (found.verdict, found.detail) == (
            Verdict.MISSING,
            "baseline did not measure host_us/direct",
        )


def test_a_sum_without_a_round_in_common_says_so() -> None:
    base = taken(1, HOST, STAGE)
    half = ROUNDS // 2
    apart = base.model_copy(
        update={
            "measurements": [
                make_measurement(HOST, noisy(20.0, 3)[:half], list(range(half))),
                make_measurement(STAGE, noisy(20.0, 4)[half:], list(range(half, ROUNDS))),
            ]
        }
    )
    found = judged_sum(base, apart, "host_us+stage_us")
    assert found.detail == "fused has no round with all of host_us, stage_us"
    with pytest.raises(UsageError, match="no case has a round with all of its terms"):
        judged([apart], [apart.model_copy()], Criteria(metrics=["host_us+stage_us"]))


def test_a_sum_is_off_by_as_much_as_the_worse_of_its_terms() -> None:
    spreads = [
        ControlSpread(arm="baseline", series=each, difference_us=us)
        for each, us in ((HOST, 5.0), (STAGE, -15.0))
    ]
    moved = taken(1, HOST, STAGE).model_copy(update={"control_spreads": spreads})
    found = judged_sum(moved, taken(5, HOST, STAGE), "host_us+stage_us")
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "copies of unchanged code differ by 75" in found.detail


def staged(host: float, stage: float, seed: int = 0) -> CaseResult:
    """A case with its host time, and staging beside it."""
    return make_case(samples={HOST: noisy(host, seed), STAGE: noisy(stage, seed + 100)})


def host_between(base: CaseResult, other: CaseResult) -> Judgement:
    """The judgement on the host time of a case in two runs."""
    found = judged([base], [other], one_run=False).judgements
    return next(each for each in found if each.metric == "host_us")


def test_different_runs_are_advisory_and_have_a_wider_margin() -> None:
    four, ten = (
        host_between(staged(50.0, 9.0, 1), staged(50.0 * by, 9.0, 2)) for by in (1.04, 1.10)
    )
    assert (four.verdict, ten.verdict) == (Verdict.SAME, Verdict.SLOWER)
    assert four.advisory
    assert four.evidence.margin.share == 0.05


@pytest.mark.parametrize(
    ("host", "stage", "verdict"),
    [
        (1.4, 1.4, Verdict.INCONCLUSIVE),  # a slower machine, or all of the code
        (1.4, 1.2, Verdict.SLOWER),  # by more than the machine
        (1.4, 1.0, Verdict.SLOWER),
        (1.4, 0.7, Verdict.SLOWER),
        (0.7, 0.7, Verdict.INCONCLUSIVE),
        (0.7, 1.0, Verdict.FASTER),
        (1.0, 1.4, Verdict.INCONCLUSIVE),  # it may be faster by what the machine became slower
        (1.0, 1.0, Verdict.SAME),
    ],
)
def test_what_the_machine_may_account_for_is_no_change_between_runs(
    host: float, stage: float, verdict: Verdict
) -> None:
    found = host_between(staged(50.0, 9.0, 1), staged(50.0 * host, 9.0 * stage, 2))
    assert found.verdict is verdict, found.detail
    systematic = found.evidence.systematic
    moved = math.log(stage)
    assert systematic.slowed == pytest.approx(max(0, moved), abs=0.01)
    assert systematic.sped == pytest.approx(max(0, -moved), abs=0.01)


@pytest.mark.parametrize("by", [3.0, 1 / 3])
def test_no_reference_accounts_for_more_than_a_machine_does(by: float) -> None:
    for factor, verdicts in (
        (by, {Verdict.INCONCLUSIVE}),
        (by**2, {Verdict.SLOWER, Verdict.FASTER}),
        (by**5, {Verdict.SLOWER, Verdict.FASTER}),
    ):
        found = host_between(staged(50.0, 9.0, 1), staged(50.0 * factor, 9.0 * factor, 2))
        assert found.verdict in verdicts, found.detail
        assert (found.verdict is Verdict.FASTER) == (len(verdicts) > 1 and by < 1)


@pytest.mark.parametrize("by", [3.0, 1 / 3])
def test_without_a_reference_the_machine_may_account_for_a_lot(by: float) -> None:
    doubtful, certain = (
        only(judged([timed(50.0, seed=1)], [timed(50.0 * factor, seed=2)], one_run=False))
        for factor in (by, by**2)
    )
    assert doubtful.verdict is Verdict.INCONCLUSIVE
    assert "the host may have made it 300 % slower or 75 % faster" in doubtful.detail
    assert certain.verdict is (Verdict.SLOWER if by > 1 else Verdict.FASTER)


@pytest.mark.parametrize(
    ("uuids", "factor", "verdict"),
    [
        (("aa", "aa"), 1.1, Verdict.SLOWER),
        (("aa", None), 1.1, Verdict.SLOWER),
        (("aa", "bb"), 1.0, Verdict.SLOWER),
        (("aa", "bb"), 1.1, Verdict.INCONCLUSIVE),
        (("aa", "bb"), 1 / 1.1, Verdict.INCONCLUSIVE),
        (("aa", "bb"), None, Verdict.SLOWER),
    ],
)
def test_times_of_two_gpus_differ_only_beyond_their_lottery(uuids, factor, verdict) -> None:
    """One is 8 % slower; copies on it take `factor` times as long."""
    gpu = series_of(Quantity.GPU_US)
    base, other = (make_case(samples={gpu: noisy(9.0 * by, seed)}) for by, seed in
                   ((1, 1), (1.08, 2)))  # fmt: skip
    results = []
    for case, uuid, by in ((base, uuids[0], 1.0), (other, uuids[1], factor)):
        gpus = [make_gpu().model_copy(update={"uuid": uuid})]
        samples = None if by is None else [[50.0 * by] * 3, [600.0] * 3]
        copies = samples and PlainCopies(moved_bytes=[100, 10_000], samples=samples)
        calibration = make_calibration({"null_gpu": [1.0]}).model_copy(update={"copies": copies})
        name = "baseline" if case is base else "fused"
        fields = {"environment": make_environment(gpus=gpus), "calibration": calibration}
        results.append(make_result(name, [case], run_id=name, **fields))
    found = only(judge_results(results))
    assert found.verdict is verdict, found.detail
    told = "the other GPU may have made it 10 % slower or 9 % faster" in found.detail
    assert told == (verdict is Verdict.INCONCLUSIVE)


def test_times_of_kernels_need_no_reference() -> None:
    gpu = series_of(Quantity.GPU_US)
    base, other = (make_case(samples={gpu: noisy(9.0 * by, by)}) for by in (1, 2))
    found = only(judged([base], [other], one_run=False))
    assert found.verdict is Verdict.SLOWER
    assert (found.evidence.systematic.slowed, found.evidence.systematic.sped) == (0, 0)


def test_staging_and_launching_are_references_of_each_other_and_of_their_sum() -> None:
    sides = [staged(50.0, 9.0, 1)], [staged(60.0, 9.0 * 1.5, 2)]
    criteria = Criteria(metrics=["host_us", "stage_us", "host_us+stage_us"])
    found = judged(*sides, criteria, one_run=False).judgements
    slowed = {each.metric: each.evidence.systematic.slowed for each in found if each.evidence}
    assert slowed == pytest.approx(
        {
            "host_us": math.log(1.5),
            "stage_us": math.log(1.2),
            "host_us+stage_us": math.log(1.5),
        },
        abs=0.01,
    )


def test_one_run_shares_a_machine() -> None:
    sides = [staged(50.0, 9.0, 1)], [staged(60.0, 9.0 * 1.5, 2)]
    found = judged(*sides).judgements[0]
    assert found.verdict is Verdict.SLOWER
    assert found.evidence.systematic == NO_SYSTEMATIC


def test_margins_of_a_case_and_of_all() -> None:
    cases = [timed(50.0, name, seed=1) for name in ("one", "two")]
    slower = [timed(51.75, name, seed=2) for name in ("one", "two")]
    rules = Rules(margin=0.01)
    one, two = judged(cases, slower, Criteria(rules, margins={"two": 0.1})).judgements
    assert (one.verdict, two.verdict) == (Verdict.SLOWER, Verdict.SAME)
    assert two.evidence.margin.configured == 0.1
    apart = judged(cases, slower, Criteria(rules, margins={"two": 0.01}), one_run=False)
    assert {e.evidence.margin.configured for e in apart.judgements if e.evidence} == {0.05}


def test_the_control_widens_the_interval() -> None:
    spread = [ControlSpread(series=HOST, arm="baseline", difference_us=-1.0)]
    found = only(judged([timed(50.0, seed=1, control_spreads=spread)], [timed(52.0, seed=2)]))
    assert found.verdict is Verdict.INCONCLUSIVE  # neither believed nor hidden
    assert found.detail.endswith("copies of unchanged code differ by 2 %")
    same = only(judged([timed(50.0, seed=1, control_spreads=spread)], [timed(50.2, seed=2)]))
    assert same.verdict is Verdict.INCONCLUSIVE  # neither is it shown to be the same
    assert found.evidence.systematic.copies == pytest.approx(0.06, rel=0.01)
    assert found.evidence.margin.share == 0.02


@pytest.mark.parametrize("base_us", [7.1, 31763.0])
def test_what_copies_differ_by_is_a_share_of_their_own_side(base_us: float) -> None:
    """18 µs of 31,763 are nothing; taken for 18 of 7.1 they hid that it takes 4,474 times longer.

    Likewise for a variant that takes far less time than the one that was copied.
    """
    other_us = 7.1 + 31763.0 - base_us
    spreads = [ControlSpread(series=HOST, arm="baseline", difference_us=18.0)]
    base, other = (
        timed(us, seed=seed, control_spreads=spreads if us > 100 else [])
        for seed, us in enumerate((base_us, other_us))
    )
    for one_run in (True, False):
        found = only(judged([base], [other], one_run=one_run))
        assert found.verdict is (Verdict.SLOWER if other_us > base_us else Verdict.FASTER)
        assert found.evidence.systematic.copies == pytest.approx(3 * 18 / 31763, rel=0.01)


def test_a_share_that_the_file_has_is_that_of_the_copied_variant() -> None:
    spread = ControlSpread(series=HOST, arm="baseline", difference_us=4.0, share=0.04)
    sides = [timed(10.0, seed=seed, control_spreads=[spread]) for seed in (1, 2)]
    evidence = only(judged(sides[:1], sides[1:])).evidence
    assert evidence.systematic.copies == pytest.approx(0.12)


@pytest.mark.parametrize("differences_us", [(0.25, -0.75), (0.75, -0.25)])
def test_the_larger_control_of_both_runs_counts(differences_us: tuple[float, float]) -> None:
    base, other = (
        timed(
            50.0,
            seed=seed,
            control_spreads=[ControlSpread(series=HOST, arm="copy", difference_us=difference_us)],
        )
        for seed, difference_us in enumerate(differences_us)
    )
    found = only(judged([base], [other], one_run=False))
    assert found.evidence.systematic.copies == pytest.approx(3 * 0.75 / 50, rel=0.01)


def test_controls_of_another_series_do_not_count() -> None:
    spreads = [
        ControlSpread(series=each, arm="copy", difference_us=3.0)
        for each in (series_of(Quantity.STEP_US), series_of(Quantity.HOST_US, load=Load.BUSY))
    ]
    found = only(judged([timed(50.0, seed=1, control_spreads=spreads)], [timed(50.0, seed=2)]))
    assert found.evidence.systematic.copies is None


@pytest.mark.parametrize("one_run", [True, False])
def test_a_control_that_moved_far_is_noise(one_run: bool) -> None:
    spread = [ControlSpread(series=HOST, arm="baseline", difference_us=15.0)]
    sides = [timed(50.0, seed=1, control_spreads=spread)], [timed(90.0, seed=2)]
    whole = judged(*sides, one_run=one_run)
    found = only(whole)
    assert (found.verdict, found.cause) == (Verdict.INCONCLUSIVE, Cause.WIDE_INTERVAL)
    assert "copies of unchanged code differ by 30" in found.detail
    assert found.evidence.detectable > 0.9
    assert exit_code(whole) is ExitCode.OK


def test_below_the_floor_nothing_counts() -> None:
    found = only(judged([timed(2.0, seed=1)], [timed(2.15, seed=2)]))
    assert found.verdict is Verdict.SAME
    assert found.evidence.margin.binds == "floor"


def test_equal_device_times_are_known_to_a_tick_only() -> None:
    series = series_of(Quantity.GPU_US)
    cases = [make_case(samples={series: [[value]] * ROUNDS}) for value in (10.0, 10.032)]
    found = only(judged([cases[0]], [cases[1]]))
    assert found.verdict is Verdict.SAME
    assert found.evidence.error == pytest.approx(
        0.032 / math.sqrt(12) * math.sqrt(2) / 10, rel=0.01
    )


def test_the_tick_of_a_run_is_that_of_its_calibration() -> None:
    series = series_of(Quantity.EVENT_US)
    floor = [2.048 + 1.024 * (index % 4) for index in range(100)]
    calibration = make_calibration({"event_floor_busy": floor})
    cases = [make_case(samples={series: [[10.24]] * ROUNDS})]
    found = only(judged(cases, cases, calibration=calibration))
    assert found.evidence.error == pytest.approx(
        1.024 / math.sqrt(12) * math.sqrt(2) / 10.24, rel=0.01
    )


@pytest.mark.parametrize(
    ("left", "right", "cause", "detail"),
    [
        ([[5.0]], [[6.0]], Cause.TOO_FEW, "1 round of 1 instance"),
        (noisy(5.0, 1, 2), noisy(9.0, 2, 2), Cause.TOO_FEW, "2 rounds of 1"),
        ([[5.0]] * 48, noisy(5.0), Cause.NO_VARIANCE, "all 48 rounds of the base"),
        (noisy(5.0), [[9.0]] * 48, Cause.NO_VARIANCE, "of the other side report"),
        ([[0.0]] * 48, noisy(5.0), Cause.NOT_POSITIVE, "the base has a time of"),
        (noisy(5.0), [[0.0], *noisy(5.0)[1:]], Cause.NOT_POSITIVE, "other side"),
    ],
)
@pytest.mark.parametrize("one_run", [True, False])
def test_never_a_verdict_from_bad_data(
    left: Any, right: Any, cause: Cause, detail: str, one_run: bool
) -> None:
    cases = [make_case(samples={HOST: samples}) for samples in (left, right)]
    found = only(judged([cases[0]], [cases[1]], one_run=one_run))
    assert (found.verdict, found.cause) == (Verdict.INVALID, cause)
    assert detail in found.detail
    assert (found.ratio, found.evidence) == (None, None)
    assert None not in (found.base_value, found.other_value)


def test_few_instances() -> None:
    cases = [timed(50.0 * by, seed=1, rounds=make_rounds(48, instances=2)) for by in (1, 2)]
    whole = judged([cases[0]], [cases[1]])
    assert not_compared(whole, {"fused": "fused"})
    found = only(whole)
    assert (found.verdict, found.cause) == (Verdict.INCONCLUSIVE, Cause.TOO_FEW)
    assert found.detail.startswith("48 rounds of 2 instances are too few")


def test_no_round_in_common() -> None:
    halves = (range(24), range(24, 48))
    cases = [
        make_case(rounds=make_rounds(48)).model_copy(
            update={"measurements": [make_measurement(HOST, noisy(5.0, 1, 24), list(half))]}
        )
        for half in halves
    ]
    found = only(judged([cases[0]], [cases[1]]))
    assert (found.cause, found.detail) == (Cause.TOO_FEW, "the sides have no round in common")


def test_a_sample_per_step_against_one_per_window() -> None:
    steps = make_case(samples={HOST: [[1.0, 2.0]] * 8}, num_steps=2)
    window = steps.model_copy(
        update={"measurements": [make_measurement(HOST, noisy(3.0, 1, 8), per="window")]}
    )
    found = only(judged([steps], [window]))
    assert (found.verdict, found.cause) == (Verdict.INVALID, Cause.UNIT_DIFFERS)


def test_steps_in_which_nothing_ran_do_not_count() -> None:
    series = series_of(Quantity.GPU_US)
    rows = [[[0.0, row[0], 0.0] for row in noisy(value, seed)] for value, seed in ((9, 1), (12, 2))]
    left, right = (make_case(samples={series: each}, num_steps=3) for each in rows)
    found = only(judged([left], [right]))
    assert found.verdict is Verdict.SLOWER
    assert found.ratio == pytest.approx(12 / 9, rel=0.01)
    assert (found.base_value, found.other_value) == pytest.approx((9, 12), rel=0.01)


def test_nothing_ran_at_all() -> None:
    series = series_of(Quantity.GPU_US)
    idle = make_case(samples={series: [[0.0]] * 24}, launches=make_launches([]))
    metric, _launches = judged([idle], [idle]).judgements
    assert (metric.verdict, metric.cause) == (Verdict.SAME, Cause.EXACT)
    uncounted = make_case(samples={series: [[0.0]] * 24})
    assert only(judged([uncounted], [uncounted])).cause is Cause.NOT_POSITIVE


def test_a_gap_may_be_zero() -> None:
    series = series_of(Quantity.GAP_US)
    cases = [make_case(samples={series: samples}) for samples in (noisy(20.0, 1), [[0.0]] * ROUNDS)]
    criteria = Criteria(metrics=["gap_us"])
    fused, split = (only(judged([cases[a]], [cases[1 - a]], criteria)) for a in (0, 1))
    assert (fused.verdict, split.verdict) == (Verdict.FASTER, Verdict.SLOWER)
    assert fused.ratio == pytest.approx(0.2 / 20.2, rel=0.01)
    assert "0.2 µs added to both sides" in fused.detail
    assert only(judged([cases[1]], [cases[1]], criteria)).verdict is Verdict.SAME


def test_parts_of_other_times_are_judged_only_where_asked_for() -> None:
    series = [series_of(quantity) for quantity in (Quantity.GAP_US, Quantity.LAST_US)]
    faster = make_case(samples={HOST: noisy(40.0, 1)} | {s: noisy(9.0, 2) for s in series})
    base = make_case(samples={HOST: noisy(50.0, 3)} | {s: noisy(5.0, 4) for s in series})
    found = judged([base], [faster])
    assert [each.metric for each in found.judgements] == ["host_us"]
    assert any("gap_us and last_us are parts" in fact for fact in found.facts)
    asked = judged([base], [faster], Criteria(metrics=["*"]))
    assert [each.metric for each in asked.judgements] == ["host_us", "gap_us", "last_us"]
    assert exit_code(asked) is ExitCode.REGRESSION


def test_metrics_are_selected_by_patterns() -> None:
    series = [HOST, series_of(Quantity.HOST_US, launch_path=LaunchPath.COMPILED)]
    case = make_case(samples={each: noisy(9.0, 1) for each in series})
    missing = timed(9.0, "gone")

    def metrics(*patterns: str) -> list[str]:
        found = judged([case, missing], [case], Criteria(metrics=patterns))
        return [each.metric for each in found.judgements]

    assert metrics() == metrics("host_us*") == ["host_us", "host_us/compiled", "case"]
    assert metrics("*/compiled") == ["host_us/compiled", "case"]
    with pytest.raises(UsageError, match="--metric gpu_us: no such metric"):
        metrics("gpu_us")


def test_missing_cases_and_metrics() -> None:
    left = make_case(samples={HOST: noisy(9.0, 1), Quantity.STEP_US: noisy(9.0, 2)})
    right = make_case(samples={HOST: noisy(9.0, 3)})
    found = judged([left, timed(1.0, "base only")], [right, timed(1.0, "other only")])
    missing = [each for each in found.judgements if each.verdict is Verdict.MISSING]
    assert [(e.case, e.metric, e.cause, e.detail) for e in missing] == [
        ("small", "step_us", Cause.NO_METRIC, "fused did not measure it"),
        ("base only", "case", Cause.NO_CASE, "fused has no such workload"),
        ("other only", "case", Cause.NO_CASE, "baseline has no such workload"),
    ]
    assert missing[0].base_value is not None
    assert exit_code(found) is ExitCode.NOT_COMPARABLE


def exploratory(seed: int, step: float = 50.0) -> CaseResult:
    """A case with a primary time of 50 µs, and one that is not."""
    return make_case(samples={HOST: noisy(50.0, seed), Quantity.STEP_US: noisy(step, seed + 50)})


@pytest.mark.parametrize(
    ("criteria", "code"),
    [
        (Criteria(), ExitCode.OK),
        (Criteria(all_metrics=True), ExitCode.REGRESSION),
        (Criteria(metrics=["*"]), ExitCode.REGRESSION),
        (Criteria(metrics=["step_us"]), ExitCode.REGRESSION),
        (Criteria(metrics=["host_us"]), ExitCode.OK),
        (Criteria(metrics=["host_us+step_us"]), ExitCode.REGRESSION),
    ],
)
def test_the_exit_code_follows_the_primary_metrics_or_what_was_asked_for(
    criteria: Criteria, code: ExitCode
) -> None:
    found = judged([exploratory(1)], [exploratory(2, step=80.0)], criteria)
    assert exit_code(found) is code
    assert {each.metric for each in found.judgements if not each.decides} == (
        {"step_us"} if criteria == Criteria() else set()
    )


@pytest.mark.parametrize("spoiled", ["failed", "missing", "disagrees"])
def test_what_is_wrong_with_an_exploratory_metric_fails_only_where_that_is_asked_for(
    spoiled: str,
) -> None:
    base, other = exploratory(1), exploratory(2)
    step = series_of(Quantity.STEP_US)
    fields: dict[str, Any] = {}
    if spoiled == "failed":
        other = make_case(samples={HOST: noisy(50.0, 2), step: [[5.0]] * ROUNDS})
    elif spoiled == "missing":
        other = timed(50.0, seed=2)
    else:
        busy = [series_of(each, load=Load.BUSY) for each in (Quantity.EVENT_US, Quantity.SPAN_US)]
        base, other = (
            make_case(samples={HOST: noisy(50.0, seed), **dict(zip(busy, rows, strict=True))})
            for seed, rows in ((1, (noisy(10, 3), noisy(10, 4))), (2, (noisy(9, 5), noisy(90, 6))))
        )
        intercepts = {Method.EVENTS: 0.0, Method.PROFILER: 0.0}
        fields = {"calibration": make_calibration(intercepts_us=intercepts)}
    assert exit_code(judged([base], [other], **fields)) is ExitCode.OK
    strict = judged([base], [other], Criteria(all_metrics=True), **fields)
    assert exit_code(strict) in (ExitCode.NOT_COMPARABLE, ExitCode.CHECK_FAILED)


def test_of_what_decides_something_must_be_compared() -> None:
    sides = [make_case(samples={Quantity.STEP_US: noisy(50.0, seed)}) for seed in (1, 2)]
    wholes = {"fused": "fused"}
    assert not_compared(judged(sides[:1], sides[1:]), wholes) == {"fused": []}
    assert not not_compared(judged(sides[:1], sides[1:], Criteria(all_metrics=True)), wholes)


@pytest.mark.parametrize("one_run", [True, False])
@pytest.mark.parametrize("factor", [1.0, 4473.0])
def test_too_few_instances_by_plan_never_pass_beside_equal_counts(
    factor: float, one_run: bool
) -> None:
    counted = {"launches": make_launches(["k"])}
    few = make_rounds(ROUNDS, instances=1)
    sides = [
        [
            timed(7.1 * by, seed=seed, rounds=few, **counted),
            timed(9.0, "whole", seed + 10, **counted),
        ]
        for seed, by in ((1, 1.0), (2, factor))
    ]
    found = judged(*sides, one_run=one_run)
    assert exit_code(found) is ExitCode.OK
    (why,) = not_compared(found, {"fused": "fused"})["fused"]
    assert (why.case, why.metric, why.cause) == ("small", "host_us", Cause.TOO_FEW)
    alone = judged(*sides, Criteria(metrics=["launches"]), one_run=one_run)
    assert not not_compared(alone, {"fused": "fused"})


def test_what_is_not_selected_is_counted_as_it_would_be_listed() -> None:
    """Parts of other times are in no table, nor are launch paths that the base lacks."""
    gap = series_of(Quantity.GAP_US)
    lost = {"operation": ops.STEP}
    cases = [
        [
            timed(50.0, seed=seed),
            make_case("small", samples={HOST: noisy(50.0, seed + 1), gap: noisy(us, seed)}, **lost),
        ]
        for seed, us in ((1, 5.0), (2, 50.0))
    ]
    cases[1][1].measurements.append(make_measurement(DIRECT, noisy(9.0, 9)))
    whole = judged(*cases)
    criteria = Criteria(selection=Selection(operations=[ops.GATHER_SLOTS.name]))
    (scope,) = judged(*cases, criteria).scope
    assert scope.endswith("nor for the exit code: 1 SAME.")
    assert [each.metric for each in whole.judgements if each.operation == ops.STEP] == ["host_us"]
    asked = replace(criteria, metrics=["gap_us", "host_us"])
    assert judged(*cases, asked).scope[0].endswith("nor for the exit code: 1 SLOWER, 1 SAME.")


def test_a_launch_path_may_come_and_must_not_go() -> None:
    direct = series_of(Quantity.HOST_US, launch_path=LaunchPath.DIRECT)
    without = timed(9.0, seed=1)
    having = make_case(samples={HOST: noisy(9.0, 2), direct: noisy(5.0, 3)})
    came, went = judged([without], [having]), judged([having], [without])
    assert [each.metric for each in came.judgements] == ["host_us"]
    assert came.scope[-1].startswith(
        "baseline does not have launch path direct: host_us/direct of 1"
    )
    assert exit_code(came) is ExitCode.OK
    assert [(each.metric, each.verdict) for each in went.judgements] == [
        ("host_us", Verdict.SAME),
        ("host_us/direct", Verdict.MISSING),
    ]
    # It is exploratory, so it decides only where that is asked for.
    assert exit_code(went) is ExitCode.OK
    for criteria in (Criteria(all_metrics=True), Criteria(metrics=["host_us*"])):
        assert exit_code(judged([having], [without], criteria)) is ExitCode.NOT_COMPARABLE
    # Where it was all that was asked for, nothing was compared.
    alone = judged([without], [having], Criteria(metrics=["host_us/direct"]))
    assert not_compared(alone, {"fused": "fused"})


@pytest.mark.parametrize(
    ("status", "cause"),
    [(Status.FAILED, Cause.FAILED), (Status.INSUFFICIENT, Cause.INSUFFICIENT)],
)
def test_cases_that_ended_badly(status: Status, cause: Cause) -> None:
    bad = make_failed_case(message="slot 3 is wrong", status=status)
    for sides in ((timed(9.0), bad), (bad, timed(9.0))):
        found = only(judged([sides[0]], [sides[1]]))
        assert (found.verdict, found.cause, found.metric) == (Verdict.INVALID, cause, "case")
        assert "slot 3 is wrong" in found.detail


def test_a_case_that_one_side_does_not_support_is_missing() -> None:
    lacking = make_failed_case(
        "small", message="lacks windows", code=ReasonCode.UNSUPPORTED, status=Status.UNSUPPORTED
    )
    (judgement,) = judged([timed(50.0)], [lacking]).judgements
    assert (judgement.verdict, judgement.cause) == (Verdict.MISSING, Cause.NO_CASE)
    assert judgement.detail == "fused lacks windows"
    assert exit_code(judged([lacking], [timed(50.0)])) == ExitCode.NOT_COMPARABLE
    both = judged([lacking, timed(50.0, "more")], [lacking, timed(50.0, "more", 1)])
    assert {each.case for each in both.judgements} == {"more"}
    assert (
        "Not compared, since neither baseline nor fused supports it: gather_slots/small; reason "
        "for gather_slots/small: lacks windows."
    ) in both.scope
    assert not any("supports" in fact for fact in judged([timed(9.0)], [timed(9.0, seed=1)]).scope)


def test_what_neither_side_supports_is_named_up_to_some() -> None:
    names = [f"case{number}" for number in range(8)]
    lacking = [
        make_failed_case(
            name, message="lacks", code=ReasonCode.UNSUPPORTED, status=Status.UNSUPPORTED
        )
        for name in names
    ]
    whole = judged(lacking, lacking)
    assert not_compared(whole, {"fused": "fused"})
    (fact,) = [fact for fact in whole.scope if "supports" in fact]
    assert "gather_slots/case4 and 3 more; reason for gather_slots/case0: lacks." in fact


def test_device_times_that_a_second_method_contradicts() -> None:
    event = series_of(Quantity.EVENT_US, load=Load.BUSY)
    span = series_of(Quantity.SPAN_US, load=Load.BUSY)
    base = make_case(samples={HOST: noisy(5.0, 1), event: noisy(12.0, 2), span: noisy(10.5, 3)})
    other = make_case(samples={HOST: noisy(5.0, 4), event: noisy(19.0, 5), span: noisy(10.5, 6)})
    calibration = make_calibration(intercepts_us={Method.EVENTS: 2.0, Method.PROFILER: 0.5})
    found = judged([base], [other], calibration=calibration)
    verdicts = {each.metric: (each.verdict, each.cause) for each in found.judgements}
    assert verdicts["host_us"][0] is Verdict.SAME
    for name in ("event_us/busy", "span_us/busy"):
        assert verdicts[name] == (Verdict.INVALID, Cause.METHODS_DISAGREE)
    detail = next(e.detail for e in found.judgements if e.metric == "span_us/busy")
    assert detail.startswith("fused: 16.99 µs by events against")
    uncalibrated = judged([base], [other])
    assert {e.cause for e in uncalibrated.judgements} <= {Cause.WITHIN_MARGIN, Cause.BEYOND_MARGIN}


def _kernel(
    name: str, registers: int | None = 32, spills: int | None = 0, binaries: int = 1
) -> Any:
    return CompiledKernel(
        name=name,
        hashes=[f"{name}{index}" for index in range(binaries)],
        registers=[registers] * binaries,
        spills=[spills] * binaries,
    )


_SLOWER, _FASTER = {"registers": "SLOWER"}, {"registers": "FASTER"}


@pytest.mark.parametrize(
    ("base", "other", "changes"),
    [
        ([], [_kernel("k")], {}),
        ([_kernel("k")], [], {}),
        ([_kernel("k")], [_kernel("k")], {}),
        ([_kernel("k")], [_kernel("k", registers=33)], {"registers": "SLOWER"}),
        ([_kernel("k", spills=8)], [_kernel("k")], {"spills": "FASTER"}),
        ([_kernel("k")], [_kernel("k", binaries=2)], {"compiled_variants": "SLOWER"}),
        (
            [_kernel("k"), _kernel("m")],
            [_kernel("n", 99)],
            {"compiled_variants": "FASTER", "registers": "SLOWER"},
        ),
        # Whichever kernel got worse, it need not be the one with most.
        ([_kernel("k", 24), _kernel("m", 64)], [_kernel("k"), _kernel("m", 64)], _SLOWER),
        ([_kernel("k", 24), _kernel("m", 64)], [_kernel("k"), _kernel("m", 32)], _SLOWER),
        ([_kernel("k", 24), _kernel("m", 64)], [_kernel("k"), _kernel("renamed", 64)], _SLOWER),
        ([_kernel("k", 64)], [_kernel("renamed", 96)], _SLOWER),
        ([_kernel("k", 64)], [_kernel("renamed", 64)], {}),
        ([_kernel("k", 24), _kernel("m", None)], [_kernel("k"), _kernel("m", 64)], _SLOWER),
        ([_kernel("k", 64), _kernel("m", 40)], [_kernel("k", 64), _kernel("m", 32)], _FASTER),
    ],
)
def test_binaries_are_compared_exactly(base: Any, other: Any, changes: dict[str, str]) -> None:
    found = judged([timed(9.0, compiled=base)], [timed(9.0, compiled=other)])
    exact = [each for each in found.judgements if each.cause is Cause.EXACT]
    changed = {e.metric: e.verdict.value for e in exact if e.verdict is not Verdict.SAME}
    assert changed == changes


@pytest.mark.parametrize(
    ("base", "other"),
    [
        ([_kernel("k", 64)], [_kernel("k", None)]),
        ([_kernel("k", None)], [_kernel("k", 64)]),
        ([_kernel("k", 64), _kernel("m")], [_kernel("k", None), _kernel("m", 24)]),
        ([_kernel("k", 64)], [_kernel("renamed", None), _kernel("m", 24)]),
    ],
)
def test_registers_that_one_side_does_not_know(base: Any, other: Any) -> None:
    found = judged([timed(9.0, compiled=base)], [timed(9.0, compiled=other)])
    registers = next(each for each in found.judgements if each.metric == "registers")
    assert (registers.verdict, registers.cause) == (Verdict.MISSING, Cause.NO_METRIC)


@pytest.mark.parametrize(
    ("base", "other", "verdict", "detail"),
    [
        ([["a", "b"]], [["a", "b"]], Verdict.SAME, "the same launches"),
        ([["a", "b"]], [["a"]], Verdict.FASTER, "1 → 0 kernel b"),
        ([["a"]], [["a", "copy:x"]], Verdict.SLOWER, "0 → 1 copy x"),
        ([["a"]], [["b"]], Verdict.SAME, "1 → 0 kernel a, 0 → 1 kernel b"),
        ([["a"], ["a", "a"]], [["a", "a"], ["a"]], Verdict.SAME, "in other steps"),
        (
            [["a"], ["a"]],
            [["a"], ["a", "a"]],
            Verdict.SLOWER,
            "2 → 3 kernel a, in all 2 steps together",
        ),
    ],
)
def test_launches_are_compared_exactly(
    base: Any, other: Any, verdict: Verdict, detail: str
) -> None:
    cases = [
        make_case(launches=make_launches(*steps), num_steps=len(steps)) for steps in (base, other)
    ]
    found = only(judged([cases[0]], [cases[1]]))
    assert (found.metric, found.verdict, found.cause) == ("launches", verdict, Cause.EXACT)
    assert detail in found.detail


@pytest.mark.parametrize(
    ("quantity", "patterns"), [(Quantity.GAP_US, ()), (Quantity.STEP_US, ("host_us",))]
)
def test_a_case_of_which_nothing_is_judged_is_named(
    quantity: Quantity, patterns: Sequence[str]
) -> None:
    sides = [
        [timed(9.0, seed=seed), make_case("odd", samples={series_of(quantity): noisy(9.0, seed)})]
        for seed in (1, 2)
    ]
    found = judged(*sides, Criteria(metrics=patterns))
    assert {each.case for each in found.judgements} == {"small"}
    (fact,) = [fact for fact in found.scope if "Nothing of" in fact]
    key = sides[0][1].key
    assert fact == f"Nothing of fused is judged in {key}: none of its metrics there was asked for."


def test_a_reason_of_a_case_that_is_ok_is_told() -> None:
    reason = make_failed_case(message="was moved by hand").reason
    odd = timed(9.0, seed=1).model_copy(update={"reason": reason})
    found = judged([timed(9.0, seed=2)], [odd])
    assert found.warnings == (
        f"fused: {odd.key} is ok, but has a failure reason: was moved by hand",
    )


def test_launches_that_one_side_did_not_count() -> None:
    left, right = timed(9.0, seed=1, launches=make_launches(["a"])), timed(9.0, seed=2)
    _host, launches = judged([left], [right]).judgements
    assert (launches.verdict, launches.cause) == (Verdict.MISSING, Cause.NO_METRIC)


def test_a_family_is_of_one_side_and_of_primary_or_other_metrics() -> None:
    names = [f"case{index}" for index in range(5)]
    series = [HOST, series_of(Quantity.STEP_US)]

    def cases(seed: int) -> list[CaseResult]:
        return [
            make_case(
                name,
                samples={each: noisy(50.0, seed + 10 * i + j) for j, each in enumerate(series)},
            )
            for i, name in enumerate(names)
        ]

    results = [make_result(name, cases(seed)) for seed, name in enumerate(("a", "b", "c"))]
    found = judge_results(results)
    families = {
        (each.metric, each.exploratory, each.evidence.tests)
        for each in found.judgements
        if each.evidence
    }
    assert families == {("host_us", False, 5), ("step_us", True, 5)}
    # Showing less changes no verdict.
    alone = judge_results(results[:2], Criteria(metrics=("host_us",)))
    shown = [each for each in found.judgements if (each.metric, each.other) == ("host_us", "b")]
    assert list(alone.judgements) == shown
    assert [each.case for each in found.judgements[:4]] == ["case0"] * 4
    assert found.others == ("b", "c")
    assert {(each.metric, each.other, each.cases) for each in found.overall} == {
        (metric, other, 5) for metric in ("host_us", "step_us") for other in ("b", "c")
    }


def test_what_is_not_shown_belongs_to_the_family_all_the_same() -> None:
    series = [HOST, series_of(Quantity.GPU_US)]
    results = [
        make_result(
            name,
            [make_case(samples={each: noisy(50.0, seed + at) for at, each in enumerate(series)})],
        )
        for seed, name in ((1, "a"), (3, "b"))
    ]
    found = only(judge_results(results, Criteria(metrics=("host_us",))))
    assert found in judge_results(results).judgements
    assert found.evidence.tests == 2


@pytest.mark.parametrize(
    ("correction", "said"),
    [
        (
            Correction.HOLM,
            "exploratory (1 test): they are corrected likewise, but apart.",
        ),
        (Correction.NONE, "exploratory (1 test): they are not corrected either."),
    ],
)
def test_facts_say_over_which_tests_verdicts_are_corrected(
    correction: Correction, said: str
) -> None:
    series = (HOST, series_of(Quantity.STEP_US))
    results = [
        make_result(name, [make_case(samples={each: noisy(50.0, seed) for each in series})])
        for seed, name in enumerate(("a", "b"))
    ]
    (fact,) = [
        each
        for each in judge_results(results, Criteria(Rules(correction=correction))).facts
        if each.startswith("alpha is 0.01 over the primary metrics")
    ]
    assert "of one side (1 test)" in fact
    assert fact.endswith(f"{said} Counts are exact.")


def test_correction_keeps_equal_sides_from_being_told_apart() -> None:
    def found(correction: Correction) -> int:
        rng = np.random.default_rng(3)
        cases = [
            [
                make_case(
                    f"c{index}", samples={HOST: noisy(50.0, int(rng.integers(1 << 30)), noise=0.2)}
                )
                for index in range(200)
            ]
            for _ in range(2)
        ]
        rules = Rules(margin=0.0, alpha=0.05, correction=correction)
        return judged(*cases, Criteria(rules)).count(Verdict.SLOWER)

    assert found(Correction.HOLM) == 0
    assert found(Correction.NONE) > 0


def test_overall_is_the_geometric_mean_of_what_has_a_ratio() -> None:
    base = [timed(50.0, name, seed=1) for name in ("x", "y")] + [make_failed_case("z")]
    other = [timed(100.0, "x", seed=2), timed(25.0, "y", seed=3), timed(9.0, "z")]
    (overall,) = judged(base, other).overall
    assert (overall.cases, overall.ratio) == (2, pytest.approx(1.0, rel=0.002))
    assert (overall.low or 1) < 1 < (overall.high or 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"environment": make_environment(triton="3.5.0")}, "Triton 3.6.0 against 3.5.0"),
        ({"plan": Plan(rounds=4, warmup_rounds=1)}, "plan.rounds 3 against 4"),
    ],
)
def test_what_must_not_be_compared(change: dict[str, Any], message: str) -> None:
    results = [
        make_result("a", [timed(9.0, seed=1)]),
        make_result("b", [timed(9.0, seed=2)], run_id="later", **change),
    ]
    with pytest.raises(NotComparableError, match=message):
        judge_results(results)
    found = judge_results(results, Criteria(ignore_device=True, ignore_plan=True))
    assert found.warnings == (f"a and b differ, as allowed: {message}",)


def test_one_result_twice_is_refused() -> None:
    result = make_result("fused", [timed(9.0)])
    with pytest.raises(UsageError, match="fused and fused are the same result: variant 'fused'"):
        judge_results([result, result])


def test_nothing_of_a_side_was_compared() -> None:
    wholes = {"fused": "fused"}
    for base, other in (
        ([timed(9.0, "x")], [timed(9.0, "y")]),
        ([timed(9.0)], [make_failed_case()]),
        ([make_case(samples={HOST: [[9.0]]})], [make_case(samples={HOST: [[9.0]]})]),
        ([], []),
    ):
        assert not_compared(judged(base, other), wholes).keys() == {"fused"}
    assert not not_compared(judged([timed(9.0)], [timed(9.0, seed=1)]), wholes)


def test_each_side_must_have_something_that_was_compared() -> None:
    results = [
        make_result(name, [timed(9.0, case, seed)])
        for seed, (name, case) in enumerate((("baseline", "x"), ("fused", "x"), ("lost", "y")))
    ]
    found = judge_results(results)
    assert not_compared(found, {"fused": "fused", "lost": "lost"}).keys() == {"lost"}
    assert not not_compared(found, {"fused": "run", "lost": "run"})


def test_a_case_without_any_figure_does_not_vanish() -> None:
    sides = [timed(9.0, "x", seed) for seed in (1, 2)]
    found = judged([sides[0], make_case("empty")], [sides[1], make_case("empty")])
    assert [each.case for each in found.judgements] == ["x", "empty"]
    last = found.judgements[1]
    assert (last.verdict, last.cause) == (Verdict.INVALID, Cause.INSUFFICIENT)
    assert "nothing was measured or counted on either" in last.detail


def test_one_round_that_varies_is_no_variance() -> None:
    for factor in (1.0, 1.5):
        values = [[[9.0 * by], *[[8.0 * by]] * 47] for by in (1.0, factor)]
        found = only(judged(*([make_case(samples={HOST: each})] for each in values)))
        assert (found.verdict, found.cause) == (Verdict.INVALID, Cause.NO_VARIANCE)
        assert found.detail == "most of the 48 rounds report the same time; no real clock does that"


def test_partial_results_are_told() -> None:
    results = [
        make_result("a", [timed(9.0)]),
        make_result("b", [timed(9.0, seed=1)], complete=False),
    ]
    with pytest.raises(NotComparableError, match=r"^b is a partial result: .*--resume DIR`, or "):
        judge_results(results)
    criteria = Criteria(allow_partial=True)
    assert judge_results(results, criteria).warnings == ("b is a partial result",)
    results[0] = results[0].model_copy(update={"complete": False})
    with pytest.raises(NotComparableError, match=r"^a and b are partial results: their"):
        judge_results(results)


def test_cases_pair_by_workload_whatever_their_names() -> None:
    workload = make_workload("shared")
    left, right = timed(9.0, "old", workload=workload), timed(9.0, "new", 1, workload=workload)
    assert only(judged([left], [right])).key == f"{ops.GATHER_SLOTS}/old"


def test_logs_that_differ_are_not_paired() -> None:
    found = only(judged([timed(9.0)], [timed(9.0, seed=1, rounds=make_rounds(48, 4))]))
    assert found.verdict is Verdict.SAME
    assert found.evidence.degrees == 3


def test_huge_errors_make_no_infinite_interval() -> None:
    wild = [[math.exp(20 * math.sin(index))] for index in range(6)]
    log = make_rounds(6, instances=3)
    cases = [make_case(samples={HOST: wild}, rounds=log), timed(9.0, rounds=log)]
    other = make_case(samples={HOST: noisy(9.0, 1, 6)}, rounds=log)
    found = only(judged([cases[0]], [other], Criteria(Rules(alpha=1e-9))))
    assert found.high == ratio_of(LARGEST_LOG)
    assert math.isfinite(found.high)


@pytest.mark.parametrize("value", [5e-324, 1e-300, 1e300, 1e308])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("count", [1, ROUNDS])
@pytest.mark.parametrize("one_run", [True, False])
@pytest.mark.parametrize("correction", Correction)
def test_no_figure_of_one_case_hides_a_regression_in_another(
    value: float, side: int, count: int, one_run: bool, correction: Correction
) -> None:
    """Of a file that was never checked, as reading does: statistics must hold by themselves."""
    rows = [[value * (1 + index / 1e6)] for index in range(count)] + noisy(50.0, 3)[count:]
    broken = make_case("broken", samples={HOST: rows})
    cases = [[timed(50.0, "broken", 4), timed(50.0, "slow", 1)] for _ in range(2)]
    cases[side][0] = broken
    cases[1][1] = timed(300.0, "slow", 2)
    found = judged(*cases, Criteria(Rules(correction=correction)), one_run=one_run)
    by_case = {each.case: each for each in found.judgements}
    assert by_case["slow"].verdict is Verdict.SLOWER
    assert exit_code(found) is ExitCode.REGRESSION
    for render in FORMATS.values():
        assert render(found)  # whatever the numbers are, there is a report


@pytest.mark.parametrize("value", [1e-320, 1e-10, 1e13, 1e300])
def test_what_no_clock_can_have_measured_is_invalid(value: float) -> None:
    no_time = make_case(samples={HOST: [[value * (1 + i / 100)] for i in range(ROUNDS)]})
    for cases, side in (((no_time, timed(9.0)), "base"), ((timed(9.0), no_time), "other side")):
        whole = judged([cases[0]], [cases[1]])
        found = only(whole)
        assert (found.verdict, found.cause) == (Verdict.INVALID, Cause.IMPOSSIBLE)
        assert (found.ratio, found.evidence, found.base_value) == (None, None, None)
        assert found.detail == f"the {side} has a time that no clock can have measured"
        assert exit_code(whole) is ExitCode.CHECK_FAILED


@pytest.mark.parametrize(
    ("before", "after", "warns"), [(32, 4, True), (4, 4, False), (None, 4, False)]
)
def test_another_number_of_threads_of_torch_is_warned_of(before, after, warns) -> None:
    sides = [
        make_result(name, [timed(50.0)], run_id=name, environment=make_environment(torch_threads=n))
        for name, n in (("baseline", before), ("fused", after))
    ]
    told = [each for each in judge_results(sides).warnings if "torch had" in each]
    assert told == warns * [
        "torch had 32 threads in baseline, and 4 in fused: calls that compute on the CPU, and "
        "checks, may take another time"
    ]


def test_another_quota_and_conditions_are_warned_of() -> None:
    condition = Condition(name="MPS (/mps)", effect="others run", remedy="end it", harm=Harm.NOTED)
    limited = make_environment(cpu_quota=2.0, conditions=[condition])
    cases = [timed(50.0, seed=1)]
    first = make_result("baseline", cases, environment=limited)
    second = make_result("fused", cases, run_id="later")
    warnings = judge_results([first, second]).warnings
    assert "baseline: MPS (/mps): others run; end it" in warnings
    assert (
        "baseline had 16 CPUs, with a quota of 2, and fused 16 CPUs: times on the host may differ "
        "for that alone"
    ) in warnings
