"""Judges the rounds of a gate at one look; `docs/gate-statistics.md` explains the design.

For each round and subject the log ratio of two arms is taken; the estimate for a subject is the
trimmed mean of these over the rounds. The control, which is the base measured once more, shows by
how much unchanged code differs, and so how wide the margin has to be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bt_bench.analysis.deciding import (
    SPREAD_FACTOR,
    WHY_NOT_TESTED,
    Contest,
    Decision,
    Rules,
    decide,
)
from bt_bench.analysis.statistics.estimates import LARGEST_LOG, Estimate, trimmed_estimate
from bt_bench.analysis.statistics.samples import median
from bt_bench.analysis.statistics.student import t_quantile
from bt_bench.analysis.verdicts import Cause, Evidence, Margin, Verdict
from bt_bench.results import (
    FloatArray,
    GateArm,
    GateRound,
    Metric,
    Subject,
    are_times,
    metric_named,
)

TRIMMED_SHARE = 0.15
"""Share of rounds trimmed at either end, so that a far slower process-round moves nothing."""

TRIMMING_DEGREES = 2
"""Degrees of freedom taken off for trimming, beyond the values that it leaves out.

The t distribution only approximates that of a trimmed mean. Its far tails, which decide when there
are tests of many cases, are too light; the number was found by simulation.
"""

SPREAD_CONFIDENCE = 0.99
MAX_SPREAD = 0.25
"""If unchanged code certainly differs, and by this much, nothing can be judged."""

MIN_SHARE_OF_ROUNDS = 0.5

LEAST_ERROR = 1e-9
"""Standard errors of a log ratio below this are rounding only: all values were equal."""


@dataclass(frozen=True)
class Finding:
    """The conclusion on one subject; see `verdicts.Judgement` for most of the fields.

    Args:
        subject: what was judged.
        verdict: the conclusion.
        cause: why.
        detail: why, in words.
        base_value: median of the base over the rounds; `None` without any.
        other_value: the same for the head.
        estimate: of the log ratio, head against base.
        evidence: the numbers, if it was tested.
        rounds: how many rounds the gate had.
        alpha: the alpha of this look.
    """

    subject: Subject
    verdict: Verdict
    cause: Cause
    detail: str
    base_value: float | None
    other_value: float | None
    estimate: Estimate | None
    evidence: Evidence | None
    rounds: int
    alpha: float

    @property
    def final(self) -> bool:
        """Whether it stands whatever further rounds show, since each look has its part of alpha."""
        return self.verdict in (Verdict.SLOWER, Verdict.FASTER)

    @property
    def open(self) -> bool:
        """Whether more rounds could change it."""
        return self.verdict is Verdict.INCONCLUSIVE or self.cause is Cause.CONTROL_MOVED


def judge_rounds(
    ledger: Ledger, rules: Rules, thresholds: Mapping[Subject, float], alpha: float
) -> list[Finding]:
    """Judges all subjects as one family.

    Args:
        ledger: the rounds so far.
        rules: margin and correction.
        thresholds: margins of subjects that do not use that of the rules, as shares.
        alpha: of the family, at this look.
    """
    values = ledger.values()
    with_values = {
        arm: {_case(s) for s, row in zip(ledger.subjects, rows, strict=True) if _present(row).size}
        for arm, rows in values.items()
    }
    sides = [
        _Sides(
            subject,
            base=values[GateArm.BASE][index],
            head=values[GateArm.HEAD][index],
            control=values[GateArm.CONTROL][index],
            arms_with_case=frozenset(
                a for a, cases in with_values.items() if _case(subject) in cases
            ),
        )
        for index, subject in enumerate(ledger.subjects)
    ]
    prepared = [side.prepare(thresholds.get(side.subject, rules.margin)) for side in sides]
    contests = [each for each in prepared if isinstance(each, Contest)]
    decisions = iter(decide(contests, rules.correction, alpha))
    return [
        _finding(side, next(decisions) if isinstance(each, Contest) else each, ledger.rounds, alpha)
        for side, each in zip(sides, prepared, strict=True)
    ]


@dataclass(frozen=True)
class _Refusal:
    """Why a subject cannot be tested."""

    verdict: Verdict
    cause: Cause
    detail: str


@dataclass(frozen=True)
class _Sides:
    """The values [rounds] of one subject; NaN where missing.

    `arms_with_case` have this or another metric of the same variant in the same case.
    """

    subject: Subject
    base: FloatArray
    head: FloatArray
    control: FloatArray
    arms_with_case: frozenset[GateArm]

    def prepare(self, threshold: float) -> Contest | _Refusal:
        """The test of this subject, or why there is none."""
        refusal = self._absent() or self._not_positive() or self._impossible()
        if refusal:
            return refusal
        metric = metric_named(self.subject.metric)
        change, spread = self._estimate(self.head, metric), self._estimate(self.control, metric)
        if change is None or spread is None:
            detail = f"{_rounds(len(self.base))} are too few for an interval"
            return _Refusal(Verdict.INCONCLUSIVE, Cause.TOO_FEW, detail)
        for name, estimate in (("head", change), ("control", spread)):
            if estimate.error < LEAST_ERROR:
                detail = (
                    f"{name} and base differ by the same in all rounds; no real clock does that"
                )
                return _Refusal(Verdict.INVALID, Cause.NO_VARIANCE, detail)
        base_value = median(_present(self.base))
        margin = Margin(
            configured=threshold,
            spread=SPREAD_FACTOR * control_spread(spread),
            floor=metric.floor / base_value,
        )
        if _is_absurd(margin) and abs(spread.location) > _reach_of_noise(spread):
            detail = f"copies of unchanged code differ by {_percent(math.expm1(spread.location))}"
            return _Refusal(Verdict.INVALID, Cause.CONTROL_MOVED, detail)
        return Contest(change, margin)

    def _absent(self) -> _Refusal | None:
        for arm, values in ((GateArm.BASE, self.base), (GateArm.HEAD, self.head)):
            if not _present(values).size:
                cause = Cause.NO_METRIC if arm in self.arms_with_case else Cause.NO_CASE
                return _Refusal(Verdict.MISSING, cause, f"the {arm.value} has no value for it")
        for name, other in (("head", self.head), ("control", self.control)):
            both = int((~np.isnan(self.base) & ~np.isnan(other)).sum())
            if both < MIN_SHARE_OF_ROUNDS * len(self.base):
                detail = (
                    f"base and {name} both have a value in only {both} of {_rounds(len(self.base))}"
                )
                return _Refusal(Verdict.INVALID, Cause.INSUFFICIENT, detail)
        return None

    def _not_positive(self) -> _Refusal | None:
        for name in ("base", "head", "control"):
            if (getattr(self, name) <= 0).any():
                detail = f"the {name} has a value of zero, so there is no ratio"
                return _Refusal(Verdict.INVALID, Cause.NOT_POSITIVE, detail)
        return None

    def _impossible(self) -> _Refusal | None:
        """Checked before any ratio: an overflow would become NaN and look like a missing value."""
        for name in ("base", "head", "control"):
            if not are_times(_present(getattr(self, name))):
                detail = f"the {name} has a value that no clock can have measured"
                return _Refusal(Verdict.INVALID, Cause.IMPOSSIBLE, detail)
        return None

    def _estimate(self, other: FloatArray, metric: Metric) -> Estimate | None:
        """The log ratio of an arm to the base; its error is at least that of the clock's tick."""
        estimate = trimmed_estimate(_present(np.log(other / self.base)), TRIMMED_SHARE)
        if estimate is None:
            return None
        if estimate.degrees < estimate.observations - 1:
            estimate = replace(estimate, degrees=estimate.degrees - TRIMMING_DEGREES)
        if not metric.tick:
            return estimate
        # A tick's rounding is the same in all rounds where values repeat: more rounds don't help.
        rounding = metric.tick / math.sqrt(12)
        floor = rounding * math.hypot(*(1 / median(_present(v)) for v in (self.base, other)))
        return replace(estimate, error=max(estimate.error, floor))


def control_spread(estimate: Estimate) -> float:
    """By how much unchanged code differs, as a share.

    That is the shift of the control or, if larger, half the length of its interval, which is how
    far noise alone can move it. (Their sum would vary more from gate to gate and so find less.)
    """
    return math.expm1(min(LARGEST_LOG, max(abs(estimate.location), _reach_of_noise(estimate))))


def _reach_of_noise(estimate: Estimate) -> float:
    """Half the length of the interval: how far noise moves the estimate if nothing differs."""
    return t_quantile((1 + SPREAD_CONFIDENCE) / 2, estimate.degrees) * estimate.error


def _is_absurd(margin: Margin) -> bool:
    return margin.binds == "spread" and margin.share > MAX_SPREAD


def _finding(side: _Sides, outcome: Decision | _Refusal, rounds: int, alpha: float) -> Finding:
    evidence = outcome.evidence if isinstance(outcome, Decision) else None
    estimate = None
    if evidence:
        estimate = Estimate(
            evidence.estimate, evidence.error, evidence.degrees, evidence.observations
        )
    return Finding(
        subject=side.subject,
        verdict=outcome.verdict,
        cause=outcome.cause,
        detail=_detail(outcome, rounds),
        base_value=_median(side.base),
        other_value=_median(side.head),
        estimate=estimate,
        evidence=evidence,
        rounds=rounds,
        alpha=alpha,
    )


def _case(subject: Subject) -> tuple[str, str, str]:
    return subject.operation.value, subject.case, subject.variant


def _median(values: FloatArray) -> float | None:
    there = _present(values)
    return median(there) if len(there) else None


def _present(values: FloatArray) -> FloatArray:
    return values[~np.isnan(values)]


_MARGIN_WORDS = {
    "configured": "as configured",
    "spread": "three times the A/A spread",
    "floor": "the floor of the metric",
}


def _detail(decision: Decision | _Refusal, rounds: int) -> str:
    if isinstance(decision, _Refusal):
        return decision.detail
    if decision.evidence is None:
        return WHY_NOT_TESTED
    margin = decision.evidence.margin
    limit = f"margin of {_percent(margin.share)} ({_MARGIN_WORDS[margin.binds]})"
    after = f"after {_rounds(rounds)}"
    change = math.expm1(min(LARGEST_LOG, decision.evidence.estimate))
    if decision.verdict is Verdict.SAME:
        return f"within the margin of {_percent(margin.wanted)} {after}"
    if decision.verdict is Verdict.INCONCLUSIVE:
        if _is_absurd(margin):
            return f"{_percent(change, '+')}, too noisy: it would need a {limit} {after}"
        if margin.binds == "spread":
            wanted = _percent(margin.wanted)
            return (
                f"{_percent(change, '+')} not shown beyond the {limit}, nor within {wanted} {after}"
            )
        return f"{_percent(change, '+')} may be within or beyond the {limit} {after}"
    word = "slower" if decision.verdict is Verdict.SLOWER else "faster"
    return f"{word} by {_percent(abs(change))}, beyond the {limit} {after}"


def _percent(share: float, sign: str = "") -> str:
    return f"{100 * share:{sign}.1f} %"


def _rounds(count: int) -> str:
    return f"{count} round" if count == 1 else f"{count} rounds"


class Ledger:
    """Values of all rounds so far, as one array per arm."""

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self.subjects = tuple(subjects)
        self._rows: dict[GateArm, list[list[float]]] = {arm: [] for arm in GateArm}

    def add(self, rounds: Sequence[GateRound]) -> None:
        """Adds rounds; values that a round lacks are stored as NaN."""
        for taken in rounds:
            for arm, rows in self._rows.items():
                values = taken.values.get(arm, {})
                rows.append([values.get(subject, math.nan) for subject in self.subjects])

    @property
    def rounds(self) -> int:
        """How many there are."""
        return len(self._rows[GateArm.BASE])

    def values(self) -> dict[GateArm, FloatArray]:
        """Per arm an array [subjects, rounds]; NaN where missing."""
        shape = (-1, len(self.subjects))
        return {
            arm: np.array(rows, dtype=np.float64).reshape(shape).T
            for arm, rows in self._rows.items()
        }
