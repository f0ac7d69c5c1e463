"""Turns estimates into verdicts: margins, corrections for many tests, and exit codes.

A change counts when it is beyond the margin with certainty, not when it merely exists: the test is
of "slower by more than the margin", one-sided, corrected over all tests of the family. `SAME` has
to be shown as well, by two one-sided tests against the margin on either side. There the margin
excludes its part for noise, since noise that hides a difference does not make two sides the same.
Source of both: Schuirmann, "A Comparison of the Two One-Sided Tests Procedure and the Power
Approach", Journal of Pharmacokinetics and Biopharmaceutics 15 (1987), 657-680; Wellek, "Testing
Statistical Hypotheses of Equivalence and Noninferiority", 2nd edition (2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bt_bench.analysis.statistics.corrections import (
    Corrected,
    benjamini_hochberg,
    holm,
    uncorrected,
)
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.analysis.verdicts import Cause, Evidence, Judged, Judgement, Margin, Verdict
from bt_bench.errors import ExitCode, UsageError
from bt_bench.names import FailOn
from bt_bench.results import Direction, LaunchPath, metric_named


class Correction(StrEnum):
    """The correction for many tests."""

    HOLM = "holm"
    BH = "bh"
    NONE = "none"


CORRECTIONS: dict[Correction, Callable[[Sequence[float], float], Corrected]] = {
    Correction.HOLM: holm,
    Correction.BH: benjamini_hochberg,
    Correction.NONE: uncorrected,
}

LEAST_ALPHA, MOST_ALPHA = 1e-9, 0.5


@dataclass(frozen=True)
class Rules:
    """How verdicts are reached.

    Args:
        margin: a change up to this share counts as none. The spread of unchanged code and the
            floor of a metric can widen it; see `Margin`.
        advisory_margin: the same where the sides are of different runs.
        alpha: with Holm's correction, the probability of any false `SLOWER` (or `FASTER`) in a
            family of tests.
        correction: over the tests of a family.

    Raises:
        UsageError: for a margin below zero, and for an alpha outside of its range.
    """

    margin: float = 0.02
    advisory_margin: float = 0.05
    alpha: float = 0.01
    correction: Correction = Correction.HOLM

    def __post_init__(self) -> None:
        for name, margin in (("margin", self.margin), ("advisory margin", self.advisory_margin)):
            if not 0 <= margin < math.inf:
                raise UsageError(f"{name} is {margin:g}; expected 0 or more, such as 0.02 for 2 %")
        if not LEAST_ALPHA <= self.alpha <= MOST_ALPHA:
            raise UsageError(
                f"alpha is {self.alpha:g}; expected a probability from {LEAST_ALPHA:g} to "
                f"{MOST_ALPHA:g}, such as 0.01"
            )


@dataclass(frozen=True)
class Contest:
    """One test: the log ratio of a metric of a case, the margin, and which way is better."""

    estimate: Estimate
    margin: Margin
    direction: Direction = Direction.LOWER

    @property
    def can_be_tested(self) -> bool:
        """Whether all numbers are finite; extreme figures overflow.

        Each part of the margin is looked at too, since the maximum of NaN and others is arbitrary.
        """
        margin = self.margin
        parts = (margin.configured, margin.spread or 0.0, margin.floor)
        return self.estimate.is_finite and all(0 <= part < math.inf for part in parts)


@dataclass(frozen=True)
class Decision:
    """Outcome of a contest, with the numbers; `None` where there was nothing to test."""

    verdict: Verdict
    cause: Cause
    evidence: Evidence | None


NOT_TESTED = Decision(Verdict.INVALID, Cause.IMPOSSIBLE, None)
"""The decision on a contest that cannot be tested."""


def decide(contests: Sequence[Contest], correction: Correction, alpha: float) -> list[Decision]:
    """Decides contests as one family.

    Contests that cannot be tested do not belong to the family and do not affect the others.

    Args:
        contests: all tests of the family.
        correction: for many tests.
        alpha: of the family, at this look.
    """
    tested = iter(_tested([each for each in contests if each.can_be_tested], correction, alpha))
    return [next(tested) if each.can_be_tested else NOT_TESTED for each in contests]


def _tested(contests: Sequence[Contest], correction: Correction, alpha: float) -> list[Decision]:
    correct = CORRECTIONS[correction]
    bounds = [math.log1p(contest.margin.share) for contest in contests]
    tails = [
        (each.estimate.tail_above(bound), each.estimate.tail_below(-bound))
        for each, bound in zip(contests, bounds, strict=True)
    ]
    # Worse is more where less is better, and less where more is.
    worse = [int(each.direction is Direction.HIGHER) for each in contests]
    slower = [pair[index] for pair, index in zip(tails, worse, strict=True)]
    faster = [pair[1 - index] for pair, index in zip(tails, worse, strict=True)]
    of_slower, of_faster = correct(slower, alpha), correct(faster, alpha)
    return [
        _decision(
            contest,
            (slower[index], of_slower.adjusted[index], of_slower.levels[index]),
            (faster[index], of_faster.adjusted[index], of_faster.levels[index]),
            alpha,
            len(contests),
        )
        for index, contest in enumerate(contests)
    ]


_Test = tuple[float, float, float]  # its p, that adjusted, and the level it is tested at


def _decision(contest: Contest, slower: _Test, faster: _Test, alpha: float, tests: int) -> Decision:
    estimate = contest.estimate
    levels = slower[2], faster[2]
    if contest.direction is Direction.HIGHER:
        levels = levels[::-1]
    if slower[1] <= alpha:
        verdict, cause = Verdict.SLOWER, Cause.BEYOND_MARGIN
    elif faster[1] <= alpha:
        verdict, cause = Verdict.FASTER, Cause.BEYOND_MARGIN
    elif _within(estimate, contest.margin.wanted) <= alpha:
        verdict, cause = Verdict.SAME, Cause.WITHIN_MARGIN
        levels = alpha, alpha
    else:
        verdict, cause = Verdict.INCONCLUSIVE, Cause.WIDE_INTERVAL
    low, high = estimate.bounds(*levels)
    evidence = Evidence(
        observations=estimate.observations,
        estimate=estimate.location,
        error=estimate.error,
        degrees=estimate.degrees,
        margin=contest.margin,
        p_slower=slower[0],
        p_faster=faster[0],
        adjusted_slower=slower[1],
        adjusted_faster=faster[1],
        alpha=alpha,
        tests=tests,
        log_low=low,
        log_high=high,
        confidence=1 - sum(levels),
    )
    return Decision(verdict, cause, evidence)


def _within(estimate: Estimate, margin: float) -> float:
    """p-value of the two one-sided tests that the change is within the margin."""
    bound = math.log1p(margin)
    return max(estimate.tail_above(-bound), estimate.tail_below(bound))


DEFAULT_FAIL_ON = (FailOn.SLOWER, FailOn.MISSING, FailOn.INVALID)

# The certain comes first: a regression counts, whatever else is missing.
_EXITS = (
    (FailOn.SLOWER, Verdict.SLOWER, ExitCode.REGRESSION),
    (FailOn.FASTER, Verdict.FASTER, ExitCode.REGRESSION),
    (FailOn.MISSING, Verdict.MISSING, ExitCode.NOT_COMPARABLE),
    (FailOn.INVALID, Verdict.INVALID, ExitCode.CHECK_FAILED),
    (FailOn.INCONCLUSIVE, Verdict.INCONCLUSIVE, ExitCode.INCONCLUSIVE),
)


def exit_code(
    judged: Judged, fail_on: Collection[FailOn] = DEFAULT_FAIL_ON, require_power: bool = False
) -> ExitCode:
    """The exit code that a comparison ends with.

    Args:
        judged: the comparison.
        fail_on: verdicts that fail it.
        require_power: also fail a gate that could not have found what it was to find, where
            nothing worse was found.
    """
    for name, verdict, code in _EXITS:
        if name in fail_on and judged.count(verdict):
            return code
    if require_power and judged.power is not None and judged.power.falls_short:
        return ExitCode.INCONCLUSIVE
    return ExitCode.OK


def without_new_paths(judgements: Iterable[Judgement]) -> tuple[list[Judgement], list[str]]:
    """Drops the metrics of launch paths that the base lacks, and returns facts that say so.

    Which launch paths a variant has besides Triton's call is its own choice. If the base lacks
    one, nothing was lost; if only the base has it, the other side lost it and stays judged.
    """
    judgements = list(judgements)
    known = {_place_of_path(each) for each in judgements if each.base_value is not None}
    kept: list[Judgement] = []
    left_out: dict[tuple[str, str], list[Judgement]] = {}
    for each in judgements:
        place = _place_of_path(each) if each.cause is Cause.NO_METRIC else None
        if place is None or place[0] is LaunchPath.JIT or place in known:
            kept.append(each)
        else:
            left_out.setdefault((each.base, place[0]), []).append(each)
    return kept, [_left_out(*place, of_path) for place, of_path in left_out.items()]


def _place_of_path(judgement: Judgement) -> tuple[LaunchPath, str, str, str]:
    """The launch path, case and sides of a judgement."""
    series = metric_named(judgement.metric).series  # a sum has none: it was asked for, so it stays
    path = LaunchPath.JIT if series is None else series.launch_path
    return path, judgement.key, judgement.base, judgement.other


def _left_out(base: str, path: str, judgements: Sequence[Judgement]) -> str:
    metrics = ", ".join(dict.fromkeys(each.metric for each in judgements))
    count = len({each.key for each in judgements})
    cases = "1 case" if count == 1 else f"{count} cases"
    return f"{base} does not have launch path {path}: {metrics} of {cases} cannot be compared."


def compared_nothing(judgements: Iterable[Judgement]) -> bool:
    """Whether nothing was compared at all, which must never pass.

    That is so if there are no judgements, or all are missing, invalid or had too few rounds.
    """
    nothing = (Verdict.MISSING, Verdict.INVALID)
    return all(each.verdict in nothing or each.cause is Cause.TOO_FEW for each in judgements)
