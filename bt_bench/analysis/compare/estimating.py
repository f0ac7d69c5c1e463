"""Estimates of the difference of two sides, as the log of their ratio, for many cases at once.

Cases whose rounds share a log are computed together, since numpy is much faster on one large array
than on a thousand small ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bt_bench.analysis.judging import (
    NO_CLOCK,
    Settled,
    has_zero,
    impossible,
    tick_error,
    without_variance,
)
from bt_bench.analysis.statistics.clusters import Estimates, clustered_medians, less
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.analysis.statistics.samples import MIN_CLUSTERS
from bt_bench.analysis.verdicts import Cause, Verdict
from bt_bench.results import (
    FloatArray,
    Measurement,
    Metric,
    Rounds,
    Taken,
    are_times,
    medians_over,
    metric_of,
)

BLOCKS = 8
"""Number of blocks of consecutive rounds that the rounds of a case are divided into."""

_CHUNK = 1024
"""Most questions that are answered at once."""

_CHUNK_SAMPLES = 1 << 20
"""Most samples of a side that are looked at together: 8 MiB, of which there are some ten copies."""

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One metric of one case on two sides.

    Args:
        base: samples of the base.
        other: samples of the other side.
        base_instances: per round of the base's log, the instance that it used.
        other_instances: the same for the other side.
        one_run: whether their rounds ran side by side.
        idle: neither side launches anything, so device times are zero.
    """

    base: Taken
    other: Taken
    base_instances: Rounds
    other_instances: Rounds
    one_run: bool
    idle: bool

    @property
    def sides(self) -> tuple[Taken, Taken]:
        """Return the samples of both sides."""
        return self.base, self.other

    @property
    def kind(self) -> tuple[object, ...]:
        """Return a key; questions of equal kind can be answered together."""
        # By value: the variants of a run have equal lists of rounds, each in its own file.
        shapes = [(side.per, side.samples.shape, side.rounds) for side in self.sides]
        return (*shapes, self.base_instances, self.other_instances, self.one_run)


@dataclass(frozen=True, slots=True)
class Answer:
    """The medians of both sides, and the estimate of their difference or why there is none.

    Both medians are `None` if a value is not a possible time.
    """

    base_value: float | None
    other_value: float | None
    outcome: Estimate | Settled


def answer(metric: Metric, questions: Sequence[Question]) -> list[Answer]:
    """Answer many questions about one metric, in the order of the questions."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, question in enumerate(questions):
        groups.setdefault(question.kind, []).append(index)
    answers: dict[int, Answer] = {}
    for members in groups.values():
        largest = max(1, *(side.samples.size for side in questions[members[0]].sides))
        size = min(_CHUNK, max(1, _CHUNK_SAMPLES // largest))
        for start in range(0, len(members), size):
            chunk = members[start : start + size]
            found = _Group(metric, [questions[index] for index in chunk]).answers()
            answers.update(zip(chunk, found, strict=True))
    return [answers[index] for index in range(len(questions))]


class _Group:
    """Questions of one kind as arrays [C, R, S]: cases, rounds, steps."""

    def __init__(self, metric: Metric, questions: Sequence[Question]) -> None:
        self._metric = metric
        self._questions = questions
        self._base = np.stack([question.base.samples for question in questions])
        self._other = np.stack([question.other.samples for question in questions])

    def answers(self) -> list[Answer]:
        first = self._questions[0]
        if first.base.per != first.other.per or self._base.shape[2] != self._other.shape[2]:
            detail = (
                f"samples are {_shape(first.base)} on one side and {_shape(first.other)} on the "
                "other"
            )
            outcome = Settled(Verdict.INVALID, Cause.UNIT_DIFFERS, detail)
            return _with_values(self._base, self._other, [outcome] * len(self._questions))
        offset = self._metric.offset
        base, other = self._base + offset, self._other + offset
        # Result files with such samples are refused, but results need not come from a file.
        no_times = ~are_times(self._base, axis=(1, 2)) | ~are_times(self._other, axis=(1, 2))
        has_zero = (base == 0).any(axis=(1, 2)) | (other == 0).any(axis=(1, 2))
        whole = np.flatnonzero(~has_zero & ~no_times)
        outcomes = self._estimates(base[whole], other[whole])
        answers = _with_values(self._base[whole], self._other[whole], outcomes)
        found = dict(zip(whole.tolist(), answers, strict=True))
        for index in np.flatnonzero(no_times).tolist():
            side = "other side" if are_times(self._base[index]) else "base"
            found[index] = Answer(None, None, impossible(side))
        for index in np.flatnonzero(has_zero & ~no_times).tolist():
            found[index] = self._with_zeros(self._questions[index], base[index], other[index])
        return [found[index] for index in range(len(self._questions))]

    def _with_zeros(self, question: Question, base: FloatArray, other: FloatArray) -> Answer:
        """Answer from the steps that ever took any time; nothing ran in the others."""
        active = (base != 0).any(axis=0) | (other != 0).any(axis=0)
        if not active.any():
            active[:] = True
        base, other = base[None, :, active], other[None, :, active]
        outcome: Estimate | Settled | None = None
        if question.idle and not base.any() and not other.any():
            outcome = Settled(Verdict.SAME, Cause.EXACT, "nothing ran on either side")
        for side, samples in (("base", base), ("other side", other)):
            if outcome is None and (samples == 0).any():
                outcome = has_zero(side)
        outcomes = self._estimates(base, other) if outcome is None else [outcome]
        return _with_values(base, other, outcomes)[0]

    def _estimates(self, base: FloatArray, other: FloatArray) -> list[Estimate | Settled]:
        """Return one outcome per case. [C, R, S], [C, R, S], all positive → C outcomes"""
        if not len(base):
            return []
        paired = self._shared is not None
        estimates = self._paired(base, other) if paired else self._unpaired(base, other)
        if estimates is None:
            return [self._too_few()] * len(base)
        floor = tick_error(self._metric.tick, _typical(base), _typical(other))
        error = np.maximum(estimates.error, floor)
        apart = np.full(len(base), math.inf)
        if paired and self._metric.tick == 0:
            apart = np.ptp(self._changes_of_pairs(base, other), axis=1)
        constant = _is_constant(base) | _is_constant(other)
        constant |= (error == 0) & (_is_mostly_constant(base) | _is_mostly_constant(other))
        return [
            Settled(Verdict.INVALID, Cause.NO_VARIANCE, _constant_detail(one_base, one_other))
            if never_varies and self._metric.tick == 0
            else without_variance(one_apart, "other side")
            or Estimate(location, one_error, estimates.degrees, estimates.observations)
            for location, one_error, one_apart, never_varies, one_base, one_other in zip(
                *(estimates.location.tolist(), error.tolist(), apart.tolist()),
                *(constant, base, other),
                strict=True,
            )
        ]

    @cached_property
    def _instances(self) -> list[list[int]]:
        """Return the instance of each round of the base, and of each round of the other side."""
        first = self._questions[0]
        sides = ((first.base, first.base_instances), (first.other, first.other_instances))
        return [[log[number] for number in taken.rounds] for taken, log in sides]

    @cached_property
    def _shared(self) -> list[tuple[int, int]] | None:
        """Return pairs of rows of the rounds that both sides have; `None` unless of one run."""
        first = self._questions[0]
        if not first.one_run or first.base_instances != first.other_instances:
            return None
        rows = {number: row for row, number in enumerate(first.other.rounds)}
        return [(row, rows[n]) for row, n in enumerate(first.base.rounds) if n in rows]

    def _paired(self, base: FloatArray, other: FloatArray) -> Estimates | None:
        shared = self._shared or []
        if not shared:
            return None
        instances = [self._instances[0][row] for row, _ in shared]
        return clustered_medians(self._changes_of_pairs(base, other), instances, BLOCKS)

    def _changes_of_pairs(self, base: FloatArray, other: FloatArray) -> FloatArray:
        """Return the changes in the rounds that both sides have. [C, R, S], [C, R, S] → [C, P]"""
        left, right = (list(rows) for rows in zip(*(self._shared or []), strict=True))
        return _changes(base[:, left], other[:, right])

    def _unpaired(self, base: FloatArray, other: FloatArray) -> Estimates | None:
        left, right = (
            clustered_medians(_over_steps(np.log(samples)), instances, BLOCKS)
            for samples, instances in zip((base, other), self._instances, strict=True)
        )
        return None if left is None or right is None else less(right, left)

    def _too_few(self) -> Settled:
        """Return `INVALID` for too few rounds; `INCONCLUSIVE` for too few instances.

        A plan may ask for that few instances.
        """
        shared = self._shared
        if shared == []:
            detail = "the sides have no round in common"
            return Settled(Verdict.INVALID, Cause.TOO_FEW, detail)
        if shared is not None:
            counts = len(shared), len({self._instances[0][row] for row, _ in shared})
        else:
            counts = min(((len(side), len({*side})) for side in self._instances), key=min)
        verdict = Verdict.INVALID if counts[0] < MIN_CLUSTERS else Verdict.INCONCLUSIVE
        return Settled(verdict, Cause.TOO_FEW, _counts(*counts))


class ControlDifference(NamedTuple):
    """The difference of an unchanged copy from its arm: in µs, and as a share."""

    us: float
    share: float


def control_difference(original: Measurement, copy: Measurement) -> ControlDifference | None:
    """Return by how much an unchanged copy differs, compared like two arms of a run.

    Args:
        original: a series of the arm.
        copy: the same of its copy, from rounds of the same log.

    Returns:
        The change of the typical time, or `None` without a round in common or with a time of zero,
        which has no ratio.
    """
    offset = metric_of(original.series).offset
    of_copy = dict(zip(copy.rounds, copy.samples, strict=True))
    pairs = [
        (samples, of_copy[index])
        for index, samples in zip(original.rounds, original.samples, strict=True)
        if samples and len(samples) == len(of_copy.get(index, ()))
    ]
    if not pairs or len({len(mine) for mine, _ in pairs}) > 1:
        return None
    base, other = np.array(pairs).transpose(1, 0, 2) + offset
    active = (base != 0).any(axis=0) | (other != 0).any(axis=0)
    base, other = base[None, :, active], other[None, :, active]
    if not active.any():
        return ControlDifference(0.0, 0.0)
    if not (base > 0).all() or not (other > 0).all():
        return None
    share = math.expm1(float(np.median(_changes(base, other))))
    return ControlDifference(float(_typical(base)[0]) * share, share)


def _changes(base: FloatArray, other: FloatArray) -> FloatArray:
    """Return each round's log ratio: the median over its steps. [C, R, S], [C, R, S] → [C, R]"""
    return _over_steps(np.log(other / base))


def _with_values(
    base: FloatArray, other: FloatArray, outcomes: Sequence[Estimate | Settled]
) -> list[Answer]:
    """Combine outcomes with the typical values. [C, R, S], [C, R, S], C outcomes → C answers"""
    values = zip(_typical(base).tolist(), _typical(other).tolist(), outcomes, strict=True)
    return [Answer(*each) for each in values]


def _typical(samples: FloatArray) -> FloatArray:
    """Return the median over steps of each step's median over rounds. [C, R, S] → [C]"""
    return _over_steps(medians_over(samples, axis=1))


def _over_steps(values: FloatArray) -> FloatArray:
    """Return the median over the last axis, which mostly has one entry."""
    return values[..., 0] if values.shape[-1] == 1 else medians_over(values, axis=-1)


def _is_constant(samples: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Find cases whose steps took the same time in all rounds. [C, R, S] → [C]"""
    constant: BoolArray = (samples == samples[:, :1]).all(axis=(1, 2))
    return constant


def _is_mostly_constant(samples: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Find cases whose steps took the same in most rounds: no median varies. [C, R, S] → [C]"""
    is_median = samples == medians_over(samples, axis=1)[:, None]
    mostly: BoolArray = (is_median.mean(axis=1) > 0.5).all(axis=1)
    return mostly


def _constant_detail(base: FloatArray, other: FloatArray) -> str:
    for side, samples in (("base", base), ("other side", other)):
        if (samples == samples[:1]).all():
            return f"all {len(samples)} rounds of the {side} report the same time; {NO_CLOCK}"
    return f"most of the {len(base)} rounds report the same time; {NO_CLOCK}"


def _counts(rounds: int, instances: int) -> str:
    return (
        f"{rounds} round{'s' * (rounds != 1)} of {instances} instance{'s' * (instances != 1)} are "
        "too few for an interval; expected at least 3 rounds and 3 instances"
    )


def _shape(taken: Taken) -> str:
    steps = taken.samples.shape[1]
    return f"per {taken.per} ({steps} a round)"
