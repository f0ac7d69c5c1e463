"""The step from estimates to verdicts: margins, corrections for many tests, and exit codes.

The margin defines which changes matter, the interval how well the change is known: noise of all
kinds widens the interval, and never the margin. A change counts when its interval lies beyond the
margin, not when it merely exists: the test is for "slower by more than the margin", one-sided,
corrected over all tests of the family. `SAME` has to be shown as well, by an interval within the
margin: two one-sided tests. All else is `INCONCLUSIVE`, with the slowdown that would have been
found. Source: Schuirmann, "A Comparison of the Two One-Sided Tests Procedure and the Power
Approach", Journal of Pharmacokinetics and Biopharmaceutics 15 (1987), 657-680; Wellek, "Testing
Statistical Hypotheses of Equivalence and Noninferiority", 2nd edition (2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import compress

from bt_bench.analysis.statistics.corrections import (
    Corrected,
    benjamini_hochberg,
    holm,
    uncorrected,
)
from bt_bench.analysis.statistics.estimates import LARGEST_LOG, Estimate, ratio_of
from bt_bench.analysis.statistics.student import t_critical, t_quantile
from bt_bench.analysis.verdicts import (
    NO_SYSTEMATIC,
    Cause,
    Evidence,
    Judged,
    Judgement,
    Margin,
    Systematic,
    Verdict,
)
from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.base.names import FailOn
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

POWER = 0.99
"""The probability of finding a slowdown as large as the detection limit."""


@dataclass(frozen=True)
class Rules:
    """The rules for verdicts.

    Args:
        margin: a change up to this share counts as none. The floor of a metric can widen it; see
            `Margin`.
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
    """One test: the log ratio of a metric of a case, the margin, and the better direction."""

    estimate: Estimate
    margin: Margin
    systematic: Systematic = NO_SYSTEMATIC
    direction: Direction = Direction.LOWER

    @property
    def can_be_tested(self) -> bool:
        """Return whether all numbers are finite; extreme figures overflow.

        Each part of the margin is checked too, since the maximum of NaN and others is arbitrary.
        """
        margin, systematic = self.margin, self.systematic
        return (
            self.estimate.is_finite
            and 0 <= margin.configured < math.inf
            and 0 <= margin.floor < math.inf
            and 0 <= (systematic.copies or 0.0) < math.inf
            and 0 <= systematic.slowed < math.inf
            and 0 <= systematic.sped < math.inf
        )

    @property
    def tails(self) -> tuple[float, float]:
        """Return the p-values of a change up and of one down, if it were exactly the margin.

        The first is the probability of an estimate this large if the log ratio were at the upper
        end of the margin; the second of an estimate this small at the lower end. Both ends are
        moved outwards by the systematic error.
        """
        (low, high), (below, above) = self.margin.logs, self._reach
        return self.estimate.tail_above(high + below), self.estimate.tail_below(low - above)

    def interval(self, levels: tuple[float, float]) -> tuple[float, float]:
        """Return the log ratio's interval, given the probabilities below and above it."""
        low, high = self.estimate.bounds(*levels)
        below, above = self._reach
        return low - below, high + above

    @cached_property
    def _reach(self) -> tuple[float, float]:
        return self.systematic.reach(self.margin)


@dataclass(frozen=True)
class Decision:
    """The outcome of a contest, with the numbers; `None` where there was nothing to test."""

    verdict: Verdict
    cause: Cause
    evidence: Evidence | None


NOT_TESTED = Decision(Verdict.INVALID, Cause.IMPOSSIBLE, None)
"""The decision on a contest that cannot be tested."""


def decide(
    contests: Sequence[Contest], correction: Correction, alpha: float, share: float = 1.0
) -> list[Decision]:
    """Decide contests as one family, or as a share of one whose other tests are decided elsewhere.

    Contests that cannot be tested do not belong to the family and do not affect the others.

    Args:
        contests: all tests of the family.
        correction: for many tests.
        alpha: of the family, at this look.
        share: of the family that these tests are, and so of its alpha that they may spend. If all
            shares add up to one, alpha bounds the errors of the family, by Bonferroni's inequality.
    """
    can_be = [each.can_be_tested for each in contests]
    tested = iter(_tested([*compress(contests, can_be)], correction, alpha, share))
    return [next(tested) if can else NOT_TESTED for can in can_be]


def verdict_on(low: float, high: float, margin: float, direction: Direction) -> Verdict:
    """Return the verdict on an interval of the ratio; all its inputs are printed beside it.

    Args:
        low: lower end of the interval, 1 for no change.
        high: upper end.
        margin: changes up to this share count as none.
        direction: which way is better.
    """
    worse, better = Verdict.SLOWER, Verdict.FASTER
    if direction is Direction.HIGHER:
        worse, better = better, worse
    if low - 1 > margin:
        return worse
    if high - 1 < -margin:
        return better
    within = low - 1 >= -margin and high - 1 <= margin
    return Verdict.SAME if within else Verdict.INCONCLUSIVE


def detection_limit(
    margin: Margin, systematic: Systematic, error: float, degrees: int, level: float
) -> float:
    """Return the smallest slowdown that a test finds with 99 %, as a share.

    Its logarithm is the upper end of the margin, plus two quantiles times the standard error, plus
    the systematic error: margin + (t(1 - level) + t(0.99)) x error + systematic. The first quantile
    is for the test at its strictest level, the second for a miss once in a hundred. Both are of the
    estimate's t distribution, since the error is an estimate too: P(found) is then exactly 99 % for
    normal noise. Source: the usual one for a one-sided t test, as in Lehr, "Sixteen S-squared over
    D-squared", Statistics in Medicine 11 (1992), 1099-1102, with the t in place of the normal.

    Args:
        margin: by how much the sides may differ.
        systematic: by how much the estimate may be off beyond its standard error.
        error: standard error of the estimate.
        degrees: degrees of freedom of its t distribution.
        level: level of the test for the smallest of all probabilities.
    """
    (_, end), (below, _) = margin.logs, systematic.reach(margin)
    # If the host may have become faster, a slowdown has to make up for that first.
    missed = below + systematic.sped
    reach = t_critical(level, degrees) + t_quantile(POWER, degrees)
    return math.expm1(min(LARGEST_LOG, end + missed + reach * error))


def _tested(
    contests: Sequence[Contest], correction: Correction, alpha: float, share: float
) -> list[Decision]:
    correct = CORRECTIONS[correction]
    tests = math.ceil(round(len(contests) / share, 6))  # 3 / 0.3 is a little more than 10
    strictest = alpha if correction is Correction.NONE else alpha / max(1, tests)
    tails = [each.tails for each in contests]
    # Worse means more where less is better, and less where more is better.
    worse = [int(each.direction is Direction.HIGHER) for each in contests]
    slower = [pair[index] for pair, index in zip(tails, worse, strict=True)]
    faster = [pair[1 - index] for pair, index in zip(tails, worse, strict=True)]
    of_slower, of_faster = correct(slower, alpha * share), correct(faster, alpha * share)
    return [
        _decision(
            contest,
            (slower[index], min(1.0, of_slower.adjusted[index] / share), of_slower.levels[index]),
            (faster[index], min(1.0, of_faster.adjusted[index] / share), of_faster.levels[index]),
            alpha,
            strictest,
            tests,
        )
        for index, contest in enumerate(contests)
    ]


_Test = tuple[float, float, float]  # p, adjusted p, and the level of the test

_CAUSES = {Verdict.SAME: Cause.WITHIN_MARGIN, Verdict.INCONCLUSIVE: Cause.WIDE_INTERVAL}


def _decision(
    contest: Contest, slower: _Test, faster: _Test, alpha: float, strictest: float, tests: int
) -> Decision:
    estimate = contest.estimate
    levels = slower[2], faster[2]
    if contest.direction is Direction.HIGHER:
        levels = levels[::-1]
    low, high = contest.interval(levels)
    verdict = _verdict(contest, low, high)
    if verdict is Verdict.INCONCLUSIVE or verdict is Verdict.SAME:
        # SAME raises no alarm, so it is not corrected for many tests.
        narrow = contest.interval((alpha, alpha))
        if _verdict(contest, *narrow) is Verdict.SAME:
            verdict, (low, high), levels = Verdict.SAME, narrow, (alpha, alpha)
    evidence = Evidence(
        observations=estimate.observations,
        estimate=estimate.location,
        error=estimate.error,
        degrees=estimate.degrees,
        margin=contest.margin,
        systematic=contest.systematic,
        p_slower=slower[0],
        p_faster=faster[0],
        adjusted_slower=slower[1],
        adjusted_faster=faster[1],
        alpha=alpha,
        tests=tests,
        log_low=low,
        log_high=high,
        confidence=1 - sum(levels),
        detectable=detection_limit(
            contest.margin, contest.systematic, estimate.error, estimate.degrees, strictest
        ),
    )
    return Decision(verdict, _CAUSES.get(verdict, Cause.BEYOND_MARGIN), evidence)


def _verdict(contest: Contest, low: float, high: float) -> Verdict:
    margin, direction = contest.margin.share, contest.direction
    return verdict_on(ratio_of(low), ratio_of(high), margin, direction)


DEFAULT_FAIL_ON = (FailOn.SLOWER, FailOn.MISSING, FailOn.INVALID)

# Certain outcomes come first: a regression counts even if other results are missing.
_EXITS = (
    (FailOn.SLOWER, Verdict.SLOWER, ExitCode.REGRESSION),
    (FailOn.FASTER, Verdict.FASTER, ExitCode.REGRESSION),
    (FailOn.MISSING, Verdict.MISSING, ExitCode.NOT_COMPARABLE),
    (FailOn.INVALID, Verdict.INVALID, ExitCode.CHECK_FAILED),
    (FailOn.INCONCLUSIVE, Verdict.INCONCLUSIVE, ExitCode.INCONCLUSIVE),
)


def worst_code(codes: Iterable[ExitCode]) -> ExitCode:
    """Return the exit code of several comparisons together: a regression counts before all."""
    order = [*(code for _, _, code in _EXITS), ExitCode.OK]
    return min(codes, key=order.index)


def exit_code(
    judged: Judged,
    fail_on: Collection[FailOn] = DEFAULT_FAIL_ON,
    require_power: bool = False,
    not_compared: Collection[str] = (),
) -> ExitCode:
    """Return the exit code of a comparison: it follows the judgements that decide.

    Args:
        judged: the comparison.
        fail_on: verdicts that fail it.
        require_power: if nothing worse was found, also fail a gate that could not have found the
            requested slowdown; a gate that has timed nothing could not.
        not_compared: sides of which too little was compared; with any, nothing passes.
    """
    verdicts = {judgement.verdict for judgement in judged.deciding}
    failed = (code for name, verdict, code in _EXITS if name in fail_on and verdict in verdicts)
    code = next(failed, ExitCode.OK)
    falls_short = judged.power is not None and judged.power.falls_short
    if code is ExitCode.OK and require_power and (falls_short or timed_nothing(judged)):
        code = ExitCode.INCONCLUSIVE
    if not_compared and code in (ExitCode.OK, ExitCode.INCONCLUSIVE):
        return ExitCode.NOT_COMPARABLE
    return code


def timed_nothing(judged: Judged) -> bool:
    """Return whether no time was tested, though the code is not equal."""
    is_equal = all(each.cause is Cause.EQUAL_CODE for each in judged.deciding)
    return judged.power is None and not is_equal


def without_new_paths(judgements: Iterable[Judgement]) -> tuple[list[Judgement], list[str]]:
    """Drop the metrics of launch paths that the base lacks, and return facts about them.

    Beside Triton's call, each variant chooses its launch paths. If the base lacks one, nothing was
    lost; if only the base has it, the other side lost it and stays judged.
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
    """Return the launch path, case and sides of a judgement."""
    series = metric_named(judgement.metric).series  # a sum has none: it was requested and stays
    path = LaunchPath.JIT if series is None else series.launch_path
    return path, judgement.key, judgement.base, judgement.other


def _left_out(base: str, path: str, judgements: Sequence[Judgement]) -> str:
    metrics = ", ".join(dict.fromkeys(each.metric for each in judgements))
    count = len({each.key for each in judgements})
    cases = "1 case" if count == 1 else f"{count} cases"
    return f"{base} does not have launch path {path}: {metrics} of {cases} cannot be compared."


def not_comparable(judgements: Iterable[Judgement]) -> list[Judgement] | None:
    """Return the judgements that keep a comparison from ever passing; `None` if it may pass.

    It compares too little if all that decides is missing, invalid, or had too few rounds. It also
    does if a time that decides had too few rounds or instances, whatever else of the case was
    compared: another time is no substitute.

    Returns:
        The judgements that compare nothing, an empty list if nothing decides; `None` if enough was
        compared.
    """
    deciding = [each for each in judgements if each.decides]
    if all(map(_says_nothing, deciding)):
        return deciding
    return [each for each in deciding if each.cause is Cause.TOO_FEW] or None


def _says_nothing(judgement: Judgement) -> bool:
    nothing = (Verdict.MISSING, Verdict.INVALID)
    return judgement.verdict in nothing or judgement.cause is Cause.TOO_FEW
