"""The judgement on a gate's rounds at one look; `docs/gate-statistics.md` explains the design.

A round is one process in which base, head and control take turns. From each round comes one log
ratio of head to base; the estimate for a subject is their trimmed mean over the rounds. The
control, which is the base measured once more, shows by how much unchanged code differs. If a
variant had to be measured apart, each arm in a process of its own, processes differ as well, and
intervals are wider: `PAIRED` and `APART` are the two ways to judge.
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
    has_zero,
    impossible,
    judge_entries,
    margin_of,
    systematic_of,
    tick_error,
    without_variance,
)
from bt_bench.analysis.statistics.estimates import LARGEST_LOG, Estimate, trimmed_estimate
from bt_bench.analysis.statistics.samples import median
from bt_bench.analysis.statistics.student import t_quantile
from bt_bench.analysis.ticks import largest_ticks
from bt_bench.analysis.verdicts import Cause, Judgement, Verdict
from bt_bench.results import (
    FloatArray,
    GateArm,
    GateRound,
    Method,
    Metric,
    SeriesKey,
    are_times,
    metric_named,
    with_ticks,
)

SPREAD_CONFIDENCE = 0.99
MIN_SHARE_OF_ROUNDS = 0.5

GATE_MARGIN = 0.015
"""The change that a gate ignores by default, as a share."""

PAIRED_FLOOR_US = 0.05
"""Differences of times that count as none where the arms share a process, in microseconds.

Values are means of many samples, which fall on all parts of a tick of the clock, so the tick does
not limit the resolution: equal copies in one process differ by less than this in the mean of a few
rounds. `docs/gate-statistics.md` has the figures.
"""


@dataclass(frozen=True)
class Estimator:
    """A way from the values of the rounds to an estimate and its margin.

    Args:
        trimmed: share of rounds left out at either end; a far slower round then moves nothing.
        fewer_degrees: degrees of freedom taken off for trimming, beyond the values left out. The t
            distribution only approximates the distribution of a trimmed mean. Its far tails, which
            decide when there are tests of many cases, are too light; found by simulation.
        against_both: whether the head is compared with base and control alike. The control is the
            base once more, so their mean has less noise than one of them.
        certain: whether the control widens the margin only by the part that noise cannot explain.
        floor_us: differences that count as none, in microseconds; at most the metric's own.
        on_ticks: whether values lie on ticks of the clock, so rounds repeat rounding errors.
    """

    trimmed: float
    fewer_degrees: int
    against_both: bool
    certain: bool
    floor_us: float
    on_ticks: bool

    def change(self, logs: Mapping[GateArm, FloatArray]) -> FloatArray:
        """Return per round the log ratio of head to base, NaN where a value is missing.

        With the control it is the least-squares estimate from the three values of a round: its
        variance is 1.5 times the variance of one value, against 2 times for head minus base alone.
        It is uncorrelated with control minus base, which the margin is made of.

        Args:
            logs: logarithms of the values [rounds] of each arm.
        """
        base, head = logs[GateArm.BASE], logs[GateArm.HEAD]
        if self.against_both:
            return head - (base + logs[GateArm.CONTROL]) / 2
        return head - base

    def estimate(self, values: FloatArray) -> Estimate | None:
        """Return the trimmed mean of log ratios [rounds]; `None` for too few."""
        estimate = trimmed_estimate(_present(values), self.trimmed)
        if estimate is None or estimate.degrees == estimate.observations - 1:
            return estimate
        degrees = estimate.degrees - self.fewer_degrees
        return replace(estimate, degrees=degrees) if degrees > 0 else None

    def spread(self, control: Estimate) -> float:
        """Return by how much unchanged code differs, as a share.

        Where processes are replicates of all arms, noise is in the error of the test already. Only
        a difference beyond noise shows that one copy is measured unlike another: the shift of the
        control less half of its interval.

        Otherwise it is the shift or, if larger, half the length of the interval, which is how far
        noise alone can move it. (Their sum would vary more from gate to gate and so find less.)
        """
        shift, reach = abs(control.location), reach_of_noise(control)
        size = max(0.0, shift - reach) if self.certain else max(shift, reach)
        return math.expm1(min(LARGEST_LOG, size))


PAIRED = Estimator(
    trimmed=0.1,
    fewer_degrees=2,
    against_both=True,
    certain=True,
    floor_us=PAIRED_FLOOR_US,
    on_ticks=False,
)
"""All arms in one process, in turns."""

APART = Estimator(
    trimmed=0.15,
    fewer_degrees=2,
    against_both=False,
    certain=False,
    floor_us=math.inf,
    on_ticks=True,
)
"""Each arm in a process of its own, which is fast or slow for as long as it lives."""


@dataclass(frozen=True)
class Labels:
    """The names of a gate's sides."""

    base: str = "base"
    head: str = "head"

    def entry(self, subject: SeriesKey) -> Entry:
        """Return the entry of a subject; all subjects of a gate are one family."""
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
    thresholds: Mapping[SeriesKey, float],
    alpha: float,
    labels: Labels = Labels(),
    apart: Mapping[str, str] | None = None,
    share: float = 1.0,
) -> list[Judgement]:
    """Judge all subjects as one family, or as a share of one, in their order.

    Args:
        ledger: the rounds so far.
        rules: margin and correction.
        thresholds: margins of subjects that override the rules' margin, as shares.
        alpha: of the family, at this look.
        labels: of base and head.
        apart: variants whose arms ran in a process each, with the reason; the arms of all others
            shared one.
        share: of the family that the subjects are; see `decide`.
    """
    values = ledger.values()
    with_values = {
        arm: {_case(s) for s, row in zip(ledger.subjects, rows, strict=True) if _present(row).size}
        for arm, rows in values.items()
    }
    entries = []
    for index, subject in enumerate(ledger.subjects):
        entry = labels.entry(subject)
        why_apart = (apart or {}).get(subject.variant)
        sides = _Sides(
            with_ticks(entry.metric, ledger.ticks),
            PAIRED if why_apart is None else APART,
            {arm: rows[index] for arm, rows in values.items()},
            frozenset(a for a, cases in with_values.items() if _case(subject) in cases),
        )
        entry.base_value = _median(sides.values[GateArm.BASE])
        entry.other_value = _median(sides.values[GateArm.HEAD])
        entry.after = f"after {_rounds(ledger.rounds)}"
        if why_apart is not None:
            entry.after += f"; measured apart, so the interval is wider: {why_apart}"
        sides.fill(entry, thresholds.get(subject, rules.margin))
        entries.append(entry)
    return judge_entries(entries, rules.correction, alpha, share)


@dataclass(frozen=True)
class _Sides:
    """The values [rounds] of one subject by arm; NaN where missing.

    `arms_with_case` have this or another metric of the same variant in the same case.
    """

    metric: Metric
    way: Estimator
    values: Mapping[GateArm, FloatArray]
    arms_with_case: frozenset[GateArm]

    def fill(self, entry: Entry, threshold: float) -> None:
        """Set the outcome of an entry: the estimate with its margin, or why there is none."""
        outcome = self._absent() or self._no_times()
        if outcome:
            entry.outcome = outcome
            return
        change, spread = self._estimates()
        if change is None or spread is None:
            rounds = _rounds(len(self.values[GateArm.BASE]))
            detail = f"{rounds} are too few for an interval"
            entry.outcome = Settled(Verdict.INCONCLUSIVE, Cause.TOO_FEW, detail)
            return
        for name, estimate in (("head", change), ("control", spread)):
            if constant := without_variance(estimate.error, name):
                entry.outcome = constant
                return
        floor = min(entry.metric.floor, self.way.floor_us)
        entry.outcome = change
        entry.margin = margin_of(entry.metric, entry.base_value, threshold, floor)
        entry.systematic = systematic_of(self.way.spread(spread))

    def _absent(self) -> Settled | None:
        for arm in (GateArm.BASE, GateArm.HEAD):
            if not _present(self.values[arm]).size:
                cause = Cause.NO_METRIC if arm in self.arms_with_case else Cause.NO_CASE
                return Settled(Verdict.MISSING, cause, f"the {arm.value} has no value for it")
        base = self.values[GateArm.BASE]
        for arm in (GateArm.HEAD, GateArm.CONTROL):
            both = int((~np.isnan(base) & ~np.isnan(self.values[arm])).sum())
            if both < MIN_SHARE_OF_ROUNDS * len(base):
                rounds = _rounds(len(base))
                detail = f"base and {arm.value} both have a value in only {both} of {rounds}"
                return Settled(Verdict.INVALID, Cause.INSUFFICIENT, detail)
        return None

    def _no_times(self) -> Settled | None:
        """Refuse times of zero, then impossible ones, before any ratio.

        An overflow would become NaN and look like a missing value.
        """
        for arm, values in self.values.items():
            if (values + self.metric.offset <= 0).any():
                return has_zero(arm.value)
        for arm, values in self.values.items():
            if not are_times(_present(values)):
                return impossible(arm.value)
        return None

    def _estimates(self) -> tuple[Estimate | None, Estimate | None]:
        """Return the estimates of the head's change and of the control's, on the log scale."""
        offset = self.metric.offset
        arms = {arm: values + offset for arm, values in self.values.items()}
        logs = {arm: np.log(values) for arm, values in arms.items()}
        change = self.way.estimate(self.way.change(logs))
        spread = self.way.estimate(logs[GateArm.CONTROL] - logs[GateArm.BASE])
        # If a metric can be zero, all samples often are; then no mean falls between two ticks.
        if change is None or spread is None or not (self.way.on_ticks or offset):
            return change, spread
        floors = (self._tick_error(arms, arm) for arm in (GateArm.HEAD, GateArm.CONTROL))
        change, spread = (
            replace(estimate, error=max(estimate.error, floor))
            for estimate, floor in zip((change, spread), floors, strict=True)
        )
        return change, spread

    def _tick_error(self, arms: Mapping[GateArm, FloatArray], other: GateArm) -> float:
        medians = (np.array(median(_present(arms[arm]))) for arm in (GateArm.BASE, other))
        return float(tick_error(self.metric.tick, *medians))


def reach_of_noise(estimate: Estimate) -> float:
    """Return half the length of the interval: how far noise moves an estimate of no difference."""
    return t_quantile((1 + SPREAD_CONFIDENCE) / 2, estimate.degrees) * estimate.error


def _case(subject: SeriesKey) -> tuple[str, str, str]:
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

    def __init__(self, subjects: Sequence[SeriesKey]) -> None:
        self.subjects = tuple(subjects)
        self.ticks: dict[Method, float] = {}  # the largest that any round showed, in µs
        self._rows: dict[GateArm, list[list[float]]] = {arm: [] for arm in GateArm}

    def add(self, rounds: Sequence[GateRound]) -> None:
        """Add rounds; values that a round lacks are stored as NaN."""
        self.ticks = largest_ticks([self.ticks, *(taken.ticks for taken in rounds)])
        for taken in rounds:
            for arm, rows in self._rows.items():
                values = taken.values.get(arm, {})
                rows.append([values.get(subject, math.nan) for subject in self.subjects])

    @property
    def rounds(self) -> int:
        """Return the number of rounds."""
        return len(self._rows[GateArm.BASE])

    def changes(self, subjects: Sequence[SeriesKey]) -> FloatArray:
        """Return changes of paired subjects by round, [subjects, rounds]; NaN where missing.

        Times of zero have none.
        """
        rows = [self.subjects.index(subject) for subject in subjects]
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = {arm: np.log(values[rows]) for arm, values in self.values().items()}
            changes = PAIRED.change(logs)
        changes[~np.isfinite(changes)] = math.nan
        return changes

    def ratios(self, subject: SeriesKey, *, apart: bool = False) -> tuple[FloatArray, FloatArray]:
        """Return ratios by round: the head's that is tested, and the control's to the base.

        They are NaN where a value is missing or zero.

        Args:
            subject: one of the ledger's.
            apart: whether its arms were measured in a process each.
        """
        row = self.subjects.index(subject)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = {arm: np.log(values[row]) for arm, values in self.values().items()}
            head = (APART if apart else PAIRED).change(logs)
            both = np.array([head, logs[GateArm.CONTROL] - logs[GateArm.BASE]])
            both[~np.isfinite(both) | (np.abs(both) > LARGEST_LOG)] = math.nan
        first, second = np.exp(both)
        return first, second

    def values(self) -> dict[GateArm, FloatArray]:
        """Return per arm an array [subjects, rounds]; NaN where missing."""
        shape = (-1, len(self.subjects))
        return {
            arm: np.array(rows, dtype=np.float64).reshape(shape).T
            for arm, rows in self._rows.items()
        }
