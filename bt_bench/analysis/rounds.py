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

from bt_bench.analysis.deciding import Rules
from bt_bench.analysis.judging import (
    Entry,
    Settled,
    control_moved,
    has_zero,
    impossible,
    judge_entries,
    margin_of,
    tick_error,
    without_variance,
)
from bt_bench.analysis.statistics.estimates import LARGEST_LOG, Estimate, trimmed_estimate
from bt_bench.analysis.statistics.samples import median
from bt_bench.analysis.statistics.student import t_quantile
from bt_bench.analysis.verdicts import Cause, Judgement, Verdict
from bt_bench.results import (
    FloatArray,
    GateArm,
    GateRound,
    Metric,
    Subject,
    are_times,
    format_share,
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
MIN_SHARE_OF_ROUNDS = 0.5


@dataclass(frozen=True)
class Labels:
    """What the sides of a gate are called."""

    base: str = "base"
    head: str = "head"

    def entry(self, subject: Subject) -> Entry:
        """What becomes the judgement on a subject; all subjects of a gate are one family."""
        return Entry(
            operation=subject.operation,
            case=subject.case,
            metric=metric_named(subject.metric),
            base=f"{subject.variant}@{self.base}",
            other=f"{subject.variant}@{self.head}",
        )


def judge_rounds(
    ledger: Ledger,
    rules: Rules,
    thresholds: Mapping[Subject, float],
    alpha: float,
    labels: Labels = Labels(),
) -> list[Judgement]:
    """Judges all subjects as one family, in their order.

    Args:
        ledger: the rounds so far.
        rules: margin and correction.
        thresholds: margins of subjects that do not use that of the rules, as shares.
        alpha: of the family, at this look.
        labels: of base and head.
    """
    values = ledger.values()
    with_values = {
        arm: {_case(s) for s, row in zip(ledger.subjects, rows, strict=True) if _present(row).size}
        for arm, rows in values.items()
    }
    entries = []
    for index, subject in enumerate(ledger.subjects):
        entry = labels.entry(subject)
        sides = _Sides(
            entry.metric,
            base=values[GateArm.BASE][index],
            head=values[GateArm.HEAD][index],
            control=values[GateArm.CONTROL][index],
            arms_with_case=frozenset(
                a for a, cases in with_values.items() if _case(subject) in cases
            ),
        )
        entry.base_value, entry.other_value = _median(sides.base), _median(sides.head)
        entry.after = f"after {_rounds(ledger.rounds)}"
        sides.fill(entry, thresholds.get(subject, rules.margin))
        entries.append(entry)
    return judge_entries(entries, rules.correction, alpha)


@dataclass(frozen=True)
class _Sides:
    """The values [rounds] of one subject; NaN where missing.

    `arms_with_case` have this or another metric of the same variant in the same case.
    """

    metric: Metric
    base: FloatArray
    head: FloatArray
    control: FloatArray
    arms_with_case: frozenset[GateArm]

    def fill(self, entry: Entry, threshold: float) -> None:
        """Sets the outcome of an entry: the estimate with its margin, or why there is none."""
        outcome = self._absent() or self._not_positive() or self._impossible()
        if outcome:
            entry.outcome = outcome
            return
        change, spread = self._estimate(self.head), self._estimate(self.control)
        if change is None or spread is None:
            detail = f"{_rounds(len(self.base))} are too few for an interval"
            entry.outcome = Settled(Verdict.INCONCLUSIVE, Cause.TOO_FEW, detail)
            return
        for name, estimate in (("head", change), ("control", spread)):
            if constant := without_variance(estimate.error, name):
                entry.outcome = constant
                return
        margin = margin_of(entry.metric, entry.base_value, threshold, control_spread(spread))
        entry.outcome, entry.margin = change, margin
        # Noise alone widens the margin, and then nothing is found; only what is certain is refused.
        if abs(spread.location) > _reach_of_noise(spread):
            apart = format_share(abs(math.expm1(spread.location)))
            entry.outcome = control_moved(margin, apart) or change

    def _absent(self) -> Settled | None:
        for arm, values in ((GateArm.BASE, self.base), (GateArm.HEAD, self.head)):
            if not _present(values).size:
                cause = Cause.NO_METRIC if arm in self.arms_with_case else Cause.NO_CASE
                return Settled(Verdict.MISSING, cause, f"the {arm.value} has no value for it")
        for name, other in (("head", self.head), ("control", self.control)):
            both = int((~np.isnan(self.base) & ~np.isnan(other)).sum())
            if both < MIN_SHARE_OF_ROUNDS * len(self.base):
                detail = (
                    f"base and {name} both have a value in only {both} of {_rounds(len(self.base))}"
                )
                return Settled(Verdict.INVALID, Cause.INSUFFICIENT, detail)
        return None

    def _not_positive(self) -> Settled | None:
        for name in ("base", "head", "control"):
            if (getattr(self, name) + self.metric.offset <= 0).any():
                return has_zero(name)
        return None

    def _impossible(self) -> Settled | None:
        """Checked before any ratio: an overflow would become NaN and look like a missing value."""
        for name in ("base", "head", "control"):
            if not are_times(_present(getattr(self, name))):
                return impossible(name)
        return None

    def _estimate(self, other: FloatArray) -> Estimate | None:
        """The log ratio of an arm to the base; its error is at least that of the clock's tick."""
        base, other = self.base + self.metric.offset, other + self.metric.offset
        estimate = trimmed_estimate(_present(np.log(other / base)), TRIMMED_SHARE)
        if estimate is None:
            return None
        if estimate.degrees < estimate.observations - 1:
            estimate = replace(estimate, degrees=estimate.degrees - TRIMMING_DEGREES)
        if not self.metric.tick:
            return estimate
        medians = (np.array(median(_present(values))) for values in (base, other))
        floor = float(tick_error(self.metric.tick, *medians))
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


def _case(subject: Subject) -> tuple[str, str, str]:
    return subject.operation, subject.case, subject.variant


def _median(values: FloatArray) -> float | None:
    there = _present(values)
    return median(there) if len(there) else None


def _present(values: FloatArray) -> FloatArray:
    return values[~np.isnan(values)]


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
