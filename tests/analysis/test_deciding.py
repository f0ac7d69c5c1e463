"""Verdicts from estimates: two one-sided tests against a margin, corrected over a family."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from support.judgements import judgement

from bt_bench.analysis.deciding import (
    DEFAULT_FAIL_ON,
    Contest,
    Correction,
    Rules,
    decide,
    exit_code,
    not_comparable,
    without_new_paths,
    worst_code,
)
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.analysis.verdicts import (
    NO_SYSTEMATIC,
    Cause,
    Judged,
    Judgement,
    Margin,
    Power,
    Systematic,
    Verdict,
)
from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.base.names import FailOn
from bt_bench.results import Direction

MARGIN = Margin(configured=0.02, floor=0.0)


def contest(percent: float, error: float = 0.001, margin: Margin = MARGIN) -> Contest:
    """A change by so many percent, known to `error`."""
    return Contest(Estimate(math.log1p(percent / 100), error, 19, 20), margin)


def verdicts(*contests: Contest, correction: Correction = Correction.HOLM) -> list[Verdict]:
    return [decision.verdict for decision in decide(contests, correction, 0.01)]


@pytest.mark.parametrize("seed", range(20))
def test_shares_of_a_family_spend_its_alpha_together(seed: int) -> None:
    """Test that each has Bonferroni's level or more, and all together no more than alpha.

    The estimates are small multiples of their error, so some are found at any level, some at none.
    """
    generator = np.random.default_rng(seed)
    shards = [generator.uniform(2.0, 2.7, count) for count in generator.integers(1, 6, size=3)]
    tests = sum(map(len, shards))
    spent = 0.0
    for changes in shards:
        contests = [contest(float(change)) for change in changes]
        share = len(contests) / tests
        decisions = decide(contests, Correction.HOLM, 0.01, share)
        for each in decisions:
            assert each.evidence is not None
            found = each.verdict is Verdict.SLOWER
            assert each.evidence.tests == tests
            assert found == (each.evidence.adjusted_slower <= 0.01)
            assert found or each.evidence.p_slower > 0.01 / tests
            least = math.log1p(each.evidence.detectable)
            (alone,) = decide([contests[0]], Correction.HOLM, 0.01 / tests)
            assert alone.evidence is not None
            assert least == pytest.approx(math.log1p(alone.evidence.detectable))
        by_itself = decide(contests, Correction.HOLM, 0.01 * share)
        assert [each.verdict is Verdict.SLOWER for each in by_itself] == [
            each.verdict is Verdict.SLOWER for each in decisions
        ]
        spent += 0.01 * share
    assert spent == pytest.approx(0.01)


def test_a_family_that_is_whole_is_decided_as_ever() -> None:
    contests = [contest(percent) for percent in (5.0, 2.5, 2.3, 0.0)]
    assert decide(contests, Correction.HOLM, 0.01, 1.0) == decide(contests, Correction.HOLM, 0.01)


def test_the_sameness_of_a_share_is_that_of_a_whole() -> None:
    """It raises no alarm, so it is at alpha itself, whoever judges the other figures."""
    near = [contest(1.7), contest(1.75)]
    (whole, _), (share, _) = (decide(near, Correction.HOLM, 0.01, part) for part in (1.0, 0.01))
    assert whole.verdict is share.verdict is Verdict.SAME


@pytest.mark.parametrize(
    ("codes", "worst"),
    [((0, 0), 0), ((0, 3), 3), ((3, 5), 5), ((5, 4), 4), ((4, 1, 5), 1)],
)
def test_of_several_gates_the_worst_counts(codes: tuple[int, ...], worst: int) -> None:
    assert worst_code(map(ExitCode, codes)) == worst


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


def test_the_wider_part_of_a_margin_binds() -> None:
    floor = Margin(0.02, 0.04)
    assert (floor.share, floor.binds) == (0.04, "floor")
    assert Margin(0.02, 0.01).binds == "configured"
    assert verdicts(contest(3.0, margin=floor)) == [Verdict.SAME]
    assert verdicts(contest(5.0, margin=floor)) == [Verdict.SLOWER]


def test_a_margin_is_as_wide_up_as_down() -> None:
    """In percent, as it is printed: 50 % less is as far as 50 % more, and nothing is 100 % less."""
    half, whole = Margin(0.5, 0.0), Margin(1.0, 0.0)
    assert half.logs == (math.log(0.5), math.log(1.5))
    assert verdicts(contest(-49, margin=half), contest(-51, margin=half)) == [
        Verdict.SAME,
        Verdict.FASTER,
    ]
    assert verdicts(contest(-99, margin=whole)) == [Verdict.SAME]


@pytest.mark.parametrize(
    ("systematic", "below", "above"),
    [
        (Systematic(), 0, 0),
        (Systematic(copies=0.01), 0, 0),  # within the margin nothing matters
        (Systematic(copies=0.06), math.log(1.06 / 1.02), math.log(1.06 / 1.02)),
        (Systematic(slowed=0.1), 0.1, 0),
        (Systematic(sped=0.1), 0, 0.1),
        (Systematic(0.06, 0.1, 0.2), math.log(1.06 / 1.02) + 0.1, math.log(1.06 / 1.02) + 0.2),
    ],
)
def test_what_is_systematic_widens_the_interval_and_not_the_margin(
    systematic: Systematic, below: float, above: float
) -> None:
    assert systematic.reach(MARGIN) == pytest.approx((below, above))
    plain, wider = (
        decide([Contest(contest(4.0).estimate, MARGIN, each)], Correction.HOLM, 0.01)[0].evidence
        for each in (NO_SYSTEMATIC, systematic)
    )
    assert plain.log_low - wider.log_low == pytest.approx(below)
    assert wider.log_high - plain.log_high == pytest.approx(above)
    assert math.log1p(wider.needed) == pytest.approx(math.log1p(0.02) + below)
    missed = below + systematic.sped
    assert math.log1p(wider.detectable) == pytest.approx(math.log1p(plain.detectable) + missed)


def test_noise_is_inconclusive_with_the_slowdown_that_would_have_been_found() -> None:
    """However noisy: of the error, of copies, of the machine, or of all of them."""
    for error, systematic in (
        (3.0, NO_SYSTEMATIC),
        (0.01, Systematic(copies=30.0)),
        (0.01, Systematic(slowed=3.0, sped=3.0)),
        (3.0, Systematic(30.0, 3.0, 3.0)),
    ):
        noisy = Contest(Estimate(0.3, error, 7, 8), MARGIN, systematic)
        (decision,) = decide([noisy], Correction.HOLM, 0.01)
        assert decision.verdict is Verdict.INCONCLUSIVE
        found = Estimate(math.log1p(decision.evidence.detectable), error, 7, 8)
        (planted,) = decide([replace(noisy, estimate=found)], Correction.HOLM, 0.01)
        assert planted.verdict is Verdict.SLOWER


@pytest.mark.parametrize("correction", Correction)
def test_every_verdict_follows_from_what_is_printed(correction: Correction) -> None:
    """SAME and INCONCLUSIVE are told apart by the interval and the margin, whatever the case."""
    generator = np.random.default_rng(7)
    seen: Counter[Verdict] = Counter()
    for _ in range(300):
        family = [_random_contest(generator) for _ in range(int(generator.integers(1, 9)))]
        for each, decision in zip(family, decide(family, correction, 0.01), strict=True):
            evidence = decision.evidence
            low, high = (math.exp(end) for end in (evidence.log_low, evidence.log_high))
            worse, better = Verdict.SLOWER, Verdict.FASTER
            if each.direction is Direction.HIGHER:
                worse, better = better, worse
            margin = max(evidence.margin.configured, evidence.margin.floor)
            if low > 1 + margin:
                expected = worse
            elif high < 1 - margin:
                expected = better
            elif 1 - margin <= low and high <= 1 + margin:
                expected = Verdict.SAME
            else:
                expected = Verdict.INCONCLUSIVE
            assert decision.verdict is expected, evidence
            seen[expected] += 1
    assert min(seen[verdict] for verdict in (*Verdict,)[:4]) > 20, seen


def _random_contest(generator: np.random.Generator) -> Contest:
    error = float(10 ** generator.uniform(-4, -0.5))
    copies = None if generator.random() < 0.3 else float(10 ** generator.uniform(-4, 0))
    machine = generator.exponential(0.05, 2) * (generator.random(2) < 0.3)
    margin = Margin(0.02, float(10 ** generator.uniform(-4, 0.5)))
    direction = Direction.HIGHER if generator.random() < 0.2 else Direction.LOWER
    estimate = Estimate(float(generator.normal(0, 0.1)), error, int(generator.integers(2, 30)), 8)
    return Contest(estimate, margin, Systematic(copies, *map(float, machine)), direction)


def test_evidence_has_the_numbers() -> None:
    decisions = decide([contest(5.0), contest(0.0)], Correction.HOLM, 0.01)
    evidence = decisions[0].evidence
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
        judgement(case=f"case{index}", verdict=verdict, cause=Cause.EXACT)
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


def test_an_empty_comparison_compared_nothing() -> None:
    assert not_comparable([]) == []


def said(verdict: Verdict, cause: Cause, metric: str = "host_us", **fields: object) -> Judgement:
    """A judgement on values that both sides have."""
    return measured(metric, 5.0, 5.0, verdict=verdict, cause=cause, **fields)


TOO_FEW = Verdict.INCONCLUSIVE, Cause.TOO_FEW
COUNTED = Verdict.SAME, Cause.EXACT, "launches"


def test_times_that_cannot_be_judged_by_plan_never_pass() -> None:
    """A time with too few instances, even if counts, other times and other cases are fine."""
    few, counted = said(*TOO_FEW), said(*COUNTED)
    other = said(Verdict.SAME, Cause.WITHIN_MARGIN, case="b")
    assert not_comparable([few, counted, other]) == [few]
    assert not_comparable([counted, other]) is None  # counts alone were asked for
    timed = said(Verdict.INCONCLUSIVE, Cause.WIDE_INTERVAL, "gpu_us")
    assert not_comparable([few, timed, counted]) == [few]
    lost = said(Verdict.MISSING, Cause.NO_METRIC, "gpu_us")
    assert not_comparable([few, lost, counted, other]) == [few]
    assert not_comparable([lost, counted, other]) is None  # it is missing, which fails by itself
    assert not_comparable([few, replace(few, other="split", cause=Cause.WIDE_INTERVAL)]) == [few]


def test_what_does_not_decide_neither_fails_nor_passes() -> None:
    few = replace(said(*TOO_FEW), decides=False)
    timed = said(Verdict.SAME, Cause.WITHIN_MARGIN)
    assert not_comparable([few, timed]) is None
    assert not_comparable([replace(timed, decides=False)]) == []
    for verdict in (Verdict.SLOWER, Verdict.MISSING, Verdict.INVALID):
        bad = replace(said(verdict, Cause.FAILED), decides=False)
        whole = Judged("", "a", ("b",), (bad, timed), ())
        assert exit_code(whole) is ExitCode.OK
        assert whole.count(verdict) == 1
        decided = replace(whole, judgements=(replace(bad, decides=True), timed))
        assert exit_code(decided) is not ExitCode.OK


def measured(metric: str, old: float | None, new: float | None, **fields: object) -> Judgement:
    """A judgement on values, `None` where a side has none."""
    missing = old is None or new is None
    verdict = (Verdict.MISSING, Cause.NO_METRIC) if missing else (Verdict.SAME, Cause.WITHIN_MARGIN)
    defaults: dict[str, object] = {
        **{"case": "a", "metric": metric, "base_value": old, "other_value": new},
        **{"base": "fused@old", "other": "fused@new"},
        **{"verdict": verdict[0], "cause": verdict[1]},
    }
    return judgement(**(defaults | fields))


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
        Contest(contest(5.0).estimate, MARGIN, Systematic(copies=math.nan)),
        Contest(contest(5.0).estimate, MARGIN, Systematic(slowed=math.inf)),
        Contest(contest(5.0).estimate, MARGIN, Systematic(sped=math.nan)),
        contest(5.0, margin=Margin(configured=0.02, floor=math.inf)),
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
        Contest(Estimate(math.log1p(percent / 100), 0.001, 19, 20), margin, direction=higher)
        for percent in (5.0, 0.0, -5.0)
    ]
    decisions = decide(contests, Correction.HOLM, 0.01)
    verdicts = [decision.verdict for decision in decisions]
    assert verdicts == [Verdict.FASTER, Verdict.SAME, Verdict.SLOWER]
    for decision in (decisions[0], decisions[2]):
        evidence = decision.evidence
        low, high = margin.logs
        assert evidence.log_low > high or evidence.log_high < low


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
    untimed = judged(Verdict.SAME)
    assert exit_code(untimed, require_power=True) is ExitCode.INCONCLUSIVE
    (same,) = untimed.judgements
    equal = replace(untimed, judgements=(replace(same, cause=Cause.EQUAL_CODE),))
    assert exit_code(equal, require_power=True) is exit_code(untimed) is ExitCode.OK
