"""Verdicts from estimates: two one-sided tests against a margin, corrected over a family."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bt_bench.analysis.deciding import (
    DEFAULT_FAIL_ON,
    Contest,
    Correction,
    Decision,
    Rules,
    compared_nothing,
    decide,
    exit_code,
    without_new_paths,
)
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.analysis.verdicts import Cause, Judged, Judgement, Margin, Power, Verdict
from bt_bench.errors import ExitCode, UsageError
from bt_bench.names import FailOn
from bt_bench.results import Direction
from bt_bench.suites.block_tables import operations as ops

MARGIN = Margin(configured=0.02, spread=None, floor=0.0)


def contest(percent: float, error: float = 0.001, margin: Margin = MARGIN) -> Contest:
    """A change by so many percent, known to `error`."""
    return Contest(Estimate(math.log1p(percent / 100), error, 19, 20), margin)


def verdicts(*contests: Contest, correction: Correction = Correction.HOLM) -> list[Verdict]:
    return [decision.verdict for decision in decide(contests, correction, 0.01)]


def test_verdicts_on_both_sides_of_the_margin() -> None:
    changes = [contest(percent) for percent in (5.0, 2.5, 1.0, 0.0, -1.0, -5.0)]
    assert verdicts(*changes) == [
        Verdict.SLOWER,
        Verdict.SLOWER,
        Verdict.SAME,
        Verdict.SAME,
        Verdict.SAME,
        Verdict.FASTER,
    ]


@pytest.mark.parametrize("percent", [1.9, 2.0, 2.1, -2.0])
def test_near_the_margin_nothing_is_certain(percent: float) -> None:
    (decision,) = decide([contest(percent)], Correction.HOLM, 0.01)
    assert (decision.verdict, decision.cause) == (Verdict.INCONCLUSIVE, Cause.WIDE_INTERVAL)


def test_a_difference_that_merely_exists_is_no_regression() -> None:
    """The trap of tests against zero: 1 % is certain to the last digit, and within the margin."""
    (decision,) = decide([contest(1.0, error=1e-6)], Correction.HOLM, 0.01)
    assert decision.verdict is Verdict.SAME


def test_noise_is_no_sameness() -> None:
    assert verdicts(contest(0.0, error=0.05)) == [Verdict.INCONCLUSIVE]


def test_more_tests_ask_for_more_certainty() -> None:
    doubtful = contest(2.5, error=0.0015)
    assert verdicts(doubtful) == [Verdict.SLOWER]
    others = [contest(0.0)] * 59
    assert verdicts(doubtful, *others)[0] is Verdict.INCONCLUSIVE
    assert verdicts(doubtful, *others, correction=Correction.NONE)[0] is Verdict.SLOWER


def test_the_widest_part_of_a_margin_binds() -> None:
    margin = Margin(configured=0.02, spread=0.06, floor=0.04)
    assert (margin.share, margin.binds) == (0.06, "spread")
    assert margin.wanted == 0.04
    assert verdicts(contest(3.0, margin=margin)) == [Verdict.SAME]
    assert verdicts(contest(5.0, margin=margin)) == [Verdict.INCONCLUSIVE]
    assert Margin(0.02, None, 0.04).binds == "floor"
    assert Margin(0.02, 0.01, 0.01).binds == "configured"


def test_evidence_has_the_numbers() -> None:
    decisions = decide([contest(5.0), contest(0.0)], Correction.HOLM, 0.01)
    evidence = decisions[0].evidence
    assert evidence is not None
    assert (evidence.observations, evidence.degrees, evidence.tests) == (20, 19, 2)
    assert evidence.estimate == pytest.approx(math.log(1.05))
    bound = math.log1p(0.02)
    assert evidence.p_slower == contest(5.0).estimate.tail_above(bound)
    assert evidence.adjusted_slower == pytest.approx(2 * evidence.p_slower)
    assert evidence.p_faster == pytest.approx(1.0)


def test_no_contest_no_decision() -> None:
    assert decide([], Correction.HOLM, 0.01) == []


def judged(*found: Verdict) -> Judged:
    judgements = [
        Judgement(
            operation=ops.STEP,
            case=f"case{index}",
            metric="host_us",
            unit="us",
            base="a",
            other="b",
            base_value=None,
            other_value=None,
            ratio=None,
            low=None,
            high=None,
            verdict=verdict,
            cause=Cause.EXACT,
            detail="",
        )
        for index, verdict in enumerate(found)
    ]
    return Judged("", "a", ("b",), tuple(judgements), ())


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([], ExitCode.OK),
        ([Verdict.SAME, Verdict.FASTER, Verdict.INCONCLUSIVE], ExitCode.OK),
        ([Verdict.SLOWER], ExitCode.REGRESSION),
        ([Verdict.SLOWER] * 256, ExitCode.REGRESSION),  # no count that wraps around to 0
        ([Verdict.SLOWER, Verdict.MISSING, Verdict.INVALID], ExitCode.REGRESSION),
        ([Verdict.MISSING, Verdict.INVALID], ExitCode.NOT_COMPARABLE),
        ([Verdict.INVALID, Verdict.SAME], ExitCode.CHECK_FAILED),
    ],
)
def test_exit_codes(found: list[Verdict], code: ExitCode) -> None:
    assert exit_code(judged(*found), DEFAULT_FAIL_ON) is code


def test_exit_codes_are_asked_for() -> None:
    all_of_them = judged(Verdict.FASTER, Verdict.INCONCLUSIVE, Verdict.MISSING)
    assert exit_code(all_of_them, [FailOn.INCONCLUSIVE]) is ExitCode.INCONCLUSIVE
    assert exit_code(all_of_them, [FailOn.FASTER]) is ExitCode.REGRESSION
    assert exit_code(all_of_them, []) is ExitCode.OK


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"margin": -0.01}, r"^margin is -0\.01; expected 0 or more"),
        ({"margin": math.nan}, "^margin is nan"),
        ({"advisory_margin": math.inf}, "^advisory margin is inf"),
        ({"alpha": 0.0}, "^alpha is 0; expected a probability from 1e-09 to 0.5"),
        ({"alpha": 0.9}, "^alpha is 0.9"),
        ({"alpha": math.nan}, "^alpha is nan"),
    ],
)
def test_rules_that_make_no_sense(changes: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Rules(**changes)


def test_decisions_are_in_order() -> None:
    changes = [contest(percent) for percent in (5.0, 0.0, -5.0)]
    decisions: list[Decision] = decide(changes, Correction.BH, 0.01)
    assert [decision.verdict for decision in decisions] == [
        Verdict.SLOWER,
        Verdict.SAME,
        Verdict.FASTER,
    ]


def test_an_empty_comparison_compared_nothing() -> None:
    assert compared_nothing([])


def measured(metric: str, old: float | None, new: float | None, **fields: object) -> Judgement:
    """A judgement on values, `None` where a side has none."""
    missing = old is None or new is None
    verdict = (Verdict.MISSING, Cause.NO_METRIC) if missing else (Verdict.SAME, Cause.WITHIN_MARGIN)
    defaults: dict[str, object] = {
        "operation": ops.STEP,
        "case": "a",
        "metric": metric,
        "unit": "us",
        "base": "fused@old",
        "other": "fused@new",
        "base_value": old,
        "other_value": new,
        **dict.fromkeys(["ratio", "low", "high"]),
        "verdict": verdict[0],
        "cause": verdict[1],
        "detail": "",
    }
    return Judgement(**(defaults | fields))  # type: ignore[arg-type]


def test_a_launch_path_that_the_base_has_not_is_a_fact_and_no_verdict() -> None:
    same = measured("host_us", 5.0, 5.0)
    new = [measured(name, None, 1.0) for name in ("host_us/direct", "step_us/direct")]
    neither = measured("host_us/graph", None, None)
    again = measured("host_us/direct", None, 1.0, case="b")
    kept, facts = without_new_paths([same, *new, neither, again])
    assert kept == [same]
    assert facts == [
        "fused@old does not have launch path direct: host_us/direct, step_us/direct of 2 cases "
        "cannot be compared.",
        "fused@old does not have launch path graph: host_us/graph of 1 case cannot be compared.",
    ]


@pytest.mark.parametrize(
    "lost",
    [
        [measured("host_us/direct", 1.0, None)],
        [measured("host_us", None, 1.0)],  # every variant has Triton's call
        [measured("launches", None, 1.0)],
        [measured("step_us/direct", 1.0, 1.0), measured("host_us/direct", None, 1.0)],
        [measured("case", None, None, cause=Cause.NO_CASE)],
        [measured("host_us/direct", None, 1.0, cause=Cause.NO_CASE)],
    ],
)
def test_whatever_else_one_side_lacks_is_missing(lost: list[Judgement]) -> None:
    assert without_new_paths(lost) == (lost, [])


def test_paths_of_another_case_or_side_do_not_count() -> None:
    others = [
        measured("step_us/direct", 1.0, 1.0, case="b"),
        measured("step_us/direct", 1.0, 1.0, other="split@new"),
    ]
    assert without_new_paths([*others, measured("host_us/direct", None, 1.0)])[0] == others


@pytest.mark.parametrize("correction", Correction)
@pytest.mark.parametrize(
    "broken",
    [
        Contest(Estimate(math.nan, 0.001, 19, 20), MARGIN),
        Contest(Estimate(math.inf, 0.001, 19, 20), MARGIN),
        Contest(Estimate(-math.inf, 0.001, 19, 20), MARGIN),
        Contest(Estimate(0.5, math.nan, 19, 20), MARGIN),
        Contest(Estimate(0.5, math.inf, 19, 20), MARGIN),
        contest(5.0, margin=Margin(configured=0.02, spread=math.nan, floor=0.0)),
        contest(5.0, margin=Margin(configured=0.02, spread=None, floor=math.inf)),
    ],
)
def test_what_cannot_be_tested_is_invalid_and_changes_no_other(
    correction: Correction, broken: Contest
) -> None:
    others = [contest(5.0), contest(0.0), contest(-5.0), contest(2.0)]
    alone = decide(others, correction, 0.01)
    assert alone[0].verdict is Verdict.SLOWER
    for place in range(len(others) + 1):
        found = decide([*others[:place], broken, *others[place:]], correction, 0.01)
        refused = found.pop(place)
        assert (refused.verdict, refused.cause) == (Verdict.INVALID, Cause.IMPOSSIBLE)
        assert refused.evidence is None
        assert found == alone


def test_where_more_is_better_less_is_slower() -> None:
    margin, higher = MARGIN, Direction.HIGHER
    contests = [
        Contest(Estimate(math.log1p(percent / 100), 0.001, 19, 20), margin, higher)
        for percent in (5.0, 0.0, -5.0)
    ]
    decisions = decide(contests, Correction.HOLM, 0.01)
    verdicts = [decision.verdict for decision in decisions]
    assert verdicts == [Verdict.FASTER, Verdict.SAME, Verdict.SLOWER]
    for decision in (decisions[0], decisions[2]):
        evidence = decision.evidence
        assert evidence is not None
        bound = math.log1p(margin.share)
        assert evidence.log_low > bound or evidence.log_high < -bound


def test_a_gate_without_power_fails_where_that_is_asked_for_and_nothing_is_worse() -> None:
    short = Power(0.05, 0.15, 1, 1, "gpu_us", math.inf, math.inf, "noise", None, "It could not.")
    for found, code in (
        (Verdict.SAME, ExitCode.INCONCLUSIVE),
        (Verdict.SLOWER, ExitCode.REGRESSION),
        (Verdict.MISSING, ExitCode.NOT_COMPARABLE),
        (Verdict.INVALID, ExitCode.CHECK_FAILED),
    ):
        weak = replace(judged(found), power=short)
        assert exit_code(weak, require_power=True) is code
        strong = replace(weak, power=replace(short, short=0))
        assert exit_code(strong, require_power=True) is exit_code(weak)
    assert exit_code(replace(judged(Verdict.SAME), power=short)) is ExitCode.OK
    assert exit_code(judged(Verdict.SAME), require_power=True) is ExitCode.OK
