"""What a timeline says: where each microsecond of a step goes, without the profiler's own weight.

A profiler makes each call of the CUDA API longer. How much is measured on empty calls in the same
rounds, and taken off every call of a step. What follows a call on the host moves forward by as
much, and so does an operation that waited for its call; one that waited for another operation
stays behind that. The step that is left must take as long as one that no profiler has seen. What
does not fit is the residual.

What a profiler adds to the operations themselves, or between them, is not taken off: no empty call
shows it. It is part of the residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any

import numpy as np

from bt_bench.analysis.statistics.samples import median
from bt_bench.results import (
    DeviceOperation,
    EmptyCalls,
    FloatArray,
    HostCall,
    Timeline,
    TracedSteps,
    Tracing,
    VariantTimeline,
)

CLOSES_WITHIN_PERCENT = 5.0
CLOSES_WITHIN_US = 0.5

LOW, HIGH = 10.0, 90.0
"""Percentiles that the spread of a row lies between."""


class Lane(StrEnum):
    """Where something happens."""

    HOST = auto()
    DEVICE = auto()


class What(StrEnum):
    """What a row is about."""

    CODE = auto()  # the host's own code, between calls of CUDA
    LAUNCH = auto()  # a call that enqueues a device operation
    CALL = auto()  # another call of CUDA
    OPERATION = auto()  # on the device
    WAIT = auto()  # behind the call's return, until the device is idle


@dataclass(frozen=True)
class Weight:
    """What a kind of tracing adds, in us.

    Args:
        launch_us: to a call that enqueues something.
        ahead_us: of that, before what it enqueues can begin.
        call_us: to each record of another call.
        wait_us: to a wait for a busy device, once that is idle.
        idle_us: to a wait for a device that is idle already.
    """

    launch_us: float
    ahead_us: float
    call_us: float
    wait_us: float
    idle_us: float

    def of(self, call: HostCall) -> float:
        """What it adds to a call, with all that this calls itself."""
        if call.operation is None:
            return call.records * self.call_us
        return self.launch_us + (call.records - 1) * self.call_us

    def ahead_of(self, call: HostCall) -> float:
        """What it adds to a call before that has enqueued anything."""
        behind = 0.0 if call.operation is None else self.launch_us - self.ahead_us
        return self.of(call) - behind


@dataclass(frozen=True)
class TimelineRow:
    """A stretch of a step; us from its begin, medians over steps.

    Args:
        lane: host or device.
        what: kind of stretch.
        name: of the call or the operation.
        start_us: when it begins.
        end_us: when it ends.
        low_us: low end of the spread of its length.
        high_us: high end of it.
        queued_us: when the command of an operation was put into its buffer, if that is known.
        submitted_us: when the buffer was given to the GPU, if that is known.
        launched_by: place of the row that enqueued an operation.
        moved_bytes: of a copy.
    """

    lane: Lane
    what: What
    name: str
    start_us: float
    end_us: float
    low_us: float
    high_us: float
    queued_us: float | None = None
    submitted_us: float | None = None
    launched_by: int | None = None
    moved_bytes: int | None = None

    @property
    def length_us(self) -> float:
        """How long it takes."""
        return self.end_us - self.start_us


@dataclass(frozen=True)
class Explained:
    """Where the time of a variant's step goes; all in us, medians over steps.

    Args:
        name: of the variant.
        step_us: the whole step without a profiler, in turn with traced ones.
        step_low_us: low end of its spread.
        step_high_us: high end of it.
        host_us: time until the call returned, likewise.
        predicted_us: the step as it follows from the traced ones of the same turns; `None` if these
            are not known.
        rows: what happens, in order; without the profiler's weight.
        launches: calls that enqueue something.
        launch_us: time in these calls.
        other_calls_us: time in other calls of CUDA before the return.
        code_us: the host's own code.
        latency_us: from the begin of the first launching call to that of its operation.
        busy_us: time in which the device works.
        hidden_us: of that, before the call has returned.
        left_us: device work that is left when the call has returned, with what it waits for.
        tail_us: from the end of the last operation to the end of the step.
        added_us: what tracing added to a step, and was taken off.
        floor_us: from the driver's call for an empty launch until the GPU is idle, measured in the
            same rounds.
    """

    name: str
    step_us: float
    step_low_us: float
    step_high_us: float
    host_us: float
    predicted_us: float | None
    rows: tuple[TimelineRow, ...]
    launches: int
    launch_us: float
    other_calls_us: float
    code_us: float
    latency_us: float | None
    busy_us: float
    hidden_us: float
    left_us: float
    tail_us: float
    added_us: float
    floor_us: float

    @property
    def residual_us(self) -> float | None:
        """What the traced steps leave unexplained; negative if they exceed the step."""
        return None if self.predicted_us is None else self.step_us - self.predicted_us

    @property
    def closes(self) -> bool:
        """Whether the residual is within 5 % or 0.5 us of the step."""
        residual = self.residual_us
        if residual is None:
            return False
        return abs(residual) <= max(CLOSES_WITHIN_US, CLOSES_WITHIN_PERCENT / 100 * self.step_us)


def weight_of(timeline: Timeline, tracing: Tracing) -> Weight | None:
    """What a kind of tracing adds; `None` where the empty calls were not taken."""
    found: dict[str, tuple[float, float, int]] = {}
    for name in ("launch", "query"):
        plain = timeline.empty_calls(name, Tracing.NONE)
        traced = timeline.empty_calls(name, tracing)
        if plain is None or traced is None or not plain.host_us or not traced.host_us:
            return None
        turns = traced.turns, plain.turns
        host = in_turn(traced.host_us, plain.host_us, *turns)
        wait = in_turn(_wait(traced), _wait(plain), *turns)
        found[name] = host, wait, traced.records
    all_launch_us, wait_us, launch_records = found["launch"]
    query_us, idle_us, query_records = found["query"]
    call_us = max(0.0, query_us / query_records)
    # The empty launch may have records beside its own.
    launch_us = max(0.0, all_launch_us - (launch_records - 1) * call_us)
    # Where the device is idle earlier after the return than without tracing, part of the launch's
    # weight lies behind what it enqueues.
    behind_us = min(launch_us, max(0.0, -wait_us))
    return Weight(launch_us, launch_us - behind_us, call_us, max(0.0, wait_us), max(0.0, idle_us))


def _floor(timeline: Timeline, empty: EmptyCalls) -> float:
    """The least that a step which launches something can take: no code of the host comes before."""
    traced = timeline.empty_calls("launch", Tracing.ALL)
    begin_us = median(traced.begin_us) if traced is not None and traced.begin_us else 0.0
    return median(empty.step_us) - begin_us


def in_turn(
    values: Sequence[float], others: Sequence[float], turns: Sequence[int], of_others: Sequence[int]
) -> float:
    """By how much values exceed others: the median over turns of the difference of the medians.

    From turn to turn a machine may change its speed by more than the values differ.

    Args:
        values: at least one.
        others: at least one.
        turns: in which turn each value was taken.
        of_others: the same for the others. If no turn has both, all are of one.
    """
    first, second = _by_turn(values, turns), _by_turn(others, of_others)
    differences = [median(first[turn]) - median(second[turn]) for turn in first if turn in second]
    return median(differences) if differences else median(values) - median(others)


def _by_turn(values: Sequence[float], turns: Sequence[int]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for value, turn in zip(values, turns, strict=True):
        found.setdefault(turn, []).append(value)
    return found


def _wait(steps: Any) -> list[float]:
    return [step - host for step, host in zip(steps.step_us, steps.host_us, strict=True)]


def explain(timeline: Timeline, variant: VariantTimeline) -> Explained | None:
    """Where the time of a variant's step goes; `None` if it was not timed and traced."""
    plain, traced = variant.of(Tracing.NONE), variant.of(Tracing.ALL)
    weight = weight_of(timeline, Tracing.ALL)
    empty = timeline.empty_calls("launch", Tracing.NONE)
    if plain is None or traced is None or weight is None or empty is None:
        return None
    if not plain.host_us or not traced.host_us:
        return None
    corrected = _Corrected(traced, weight)
    rows = corrected.rows()
    returned = corrected.returned_us
    low, high = np.percentile(plain.step_us, [LOW, HIGH])
    launching = [row for row in rows if row.what is What.LAUNCH]
    of_device = [row for row in rows if row.lane is Lane.DEVICE]
    busy, hidden = _busy(of_device, returned)
    last = max((row.end_us for row in of_device), default=returned)
    end = corrected.end_us
    residual = in_turn(plain.step_us, corrected.ends_us, plain.turns, traced.turns)
    return Explained(
        name=variant.name,
        step_us=median(plain.step_us),
        step_low_us=float(low),
        step_high_us=float(high),
        host_us=median(plain.host_us),
        predicted_us=median(plain.step_us) - residual,
        rows=tuple(rows),
        launches=len(launching),
        launch_us=sum(row.length_us for row in launching),
        other_calls_us=sum(row.length_us for row in rows if row.what is What.CALL),
        code_us=sum(row.length_us for row in rows if row.what is What.CODE),
        latency_us=_latency(rows),
        busy_us=busy,
        hidden_us=hidden,
        left_us=max(0.0, last - returned),
        tail_us=max(0.0, end - max(last, returned)),
        added_us=median(traced.step_us) - end,
        floor_us=_floor(timeline, empty),
    )


@dataclass(frozen=True)
class _Moved:
    """An operation in all samples: as traced, and without what tracing added before it.

    `call_shift` is by how much the call that enqueued it has moved forward when it did so.
    """

    traced_start: FloatArray
    traced_end: FloatArray
    start: FloatArray
    end: FloatArray
    call_shift: FloatArray


class _Corrected:
    """Traced steps without what tracing added.

    The calls are gone through in order, each with the operations that it enqueued. All is done for
    each sample by itself: whether an operation waited for another one differs among them.

    Args:
        traced: with all calls and operations.
        weight: what that added.
    """

    def __init__(self, traced: TracedSteps, weight: Weight) -> None:
        self._traced, self._weight = traced, weight
        self._host, self._step = _array(traced.host_us), _array(traced.step_us)
        # The wait is a call of CUDA itself, behind the call's return.
        self._calls = [
            call for call in traced.calls if median(_array(call.start_us) - self._host) < 0
        ]
        self._spans: list[tuple[FloatArray, FloatArray]] = []
        self._moved: dict[int, _Moved] = {}
        shift = self._go_through()
        self._returned = self._host - shift
        self._end = self._ended(shift)
        self.returned_us = median(self._returned)
        self.end_us = median(self._end)
        self.ends_us = [float(end) for end in self._end]

    def rows(self) -> list[TimelineRow]:
        """The host's stretches in order, each operation behind the call that enqueued it."""
        rows: list[TimelineRow] = []
        shown: set[int] = set()
        at = np.zeros(len(self._returned))
        for call, (start, end) in zip(self._calls, self._spans, strict=True):
            _add_code(rows, at, start)
            what = What.CALL if call.operation is None else What.LAUNCH
            rows.append(_row(Lane.HOST, what, call.name, start, end))
            if call.operation is not None and call.operation not in shown:
                shown.add(call.operation)
                rows.append(self._operation(call.operation, len(rows) - 1))
            at = end
        _add_code(rows, at, self._returned)
        rows += [
            self._operation(place, None)
            for place in range(len(self._traced.operations))
            if place not in shown
        ]
        rows.append(_row(Lane.HOST, What.WAIT, "wait for the device", self._returned, self._end))
        return rows

    def _go_through(self) -> FloatArray:
        """Moves all calls and operations; returns by how much the host has moved at the return."""
        enqueued = self._enqueued()
        shift = np.zeros(len(self._host))
        at = shift
        for place in enqueued.get(None, ()):
            self._move(place, shift, None, shift)
        for number, call in enumerate(self._calls):
            start, end = _array(call.start_us), _array(call.end_us)
            # A call that took less than what is taken off has no length: part of what tracing adds
            # lies outside of the record, in what the host does next.
            begun = np.maximum(start - shift, at)
            for place in enqueued.get(number, ()):
                self._move(place, shift + self._weight.ahead_of(call), begun, end)
            shift = shift + self._weight.of(call)
            if _waits(call.name):
                shift = self._waited(start, end, shift)
            at = np.maximum(begun, end - shift)
            self._spans.append((begun, at))
        return shift

    def _enqueued(self) -> dict[int | None, list[int]]:
        """The operations that each call enqueued, by places; `None`: before the first call.

        One that no record of a call belongs to, as in a graph, is taken for one of the last call
        that had begun before it.
        """
        of_operation = {
            call.operation: number
            for number, call in enumerate(self._calls)
            if call.operation is not None
        }
        begun = [median(call.start_us) for call in self._calls]
        enqueued: dict[int | None, list[int]] = {}
        for place, operation in enumerate(self._traced.operations):
            number = of_operation.get(place)
            if number is None:
                start = median(operation.start_us)
                earlier = [at for at, moment in enumerate(begun) if moment < start]
                number = earlier[-1] if earlier else None
            enqueued.setdefault(number, []).append(place)
        return enqueued

    def _move(
        self, place: int, shift: FloatArray, begun: FloatArray | None, call_end: FloatArray
    ) -> None:
        """Moves an operation forward with its call, but not before one that it came after.

        Which stream an operation is of is not known. Those that overlap are of several; one that
        began when another had ended is taken to follow it.

        Args:
            place: of the operation.
            shift: by how much what was enqueued has moved forward.
            begun: when the moved call begins.
            call_end: when the call returned, as traced.
        """
        operation = self._traced.operations[place]
        traced_start, traced_end = _array(operation.start_us), _array(operation.end_us)
        start = traced_start - shift
        if begun is not None:
            start = np.maximum(start, begun)
        before = [
            moved for moved in self._moved.values() if median(traced_start - moved.traced_end) >= 0
        ]
        if before:
            last = max(before, key=lambda moved: median(moved.traced_end))
            gap = traced_start - last.traced_end
            # One that was enqueued in time also keeps its distance, which is the device's own.
            queued = last.traced_end > call_end
            start = np.maximum(start, last.end + np.where(queued, gap, np.minimum(gap, 0.0)))
        end = start + (traced_end - traced_start)
        self._moved[place] = _Moved(traced_start, traced_end, start, end, shift)

    def _waited(self, start: FloatArray, end: FloatArray, shift: FloatArray) -> FloatArray:
        """By how much the return of a call moves that may have waited for the device.

        Args:
            start: when the call was made, as traced.
            end: when it returned.
            shift: of the host, if it did not wait.
        """
        last = start
        for moved in self._moved.values():
            waited = (moved.traced_end > last) & (moved.traced_end <= end)
            behind = moved.traced_end - moved.end + self._weight.wait_us
            shift = np.where(waited, behind, shift)
            last = np.where(waited, moved.traced_end, last)
        return shift

    def _ended(self, shift: FloatArray) -> FloatArray:
        """When the device is idle and the wait for it has returned."""
        idle = self._step - shift - self._weight.idle_us
        ends = list(self._moved.values())
        if not ends:
            return np.maximum(idle, self._returned)
        traced: FloatArray = np.max([moved.traced_end for moved in ends], axis=0)
        last: FloatArray = np.max([moved.end for moved in ends], axis=0)
        busy = last + (self._step - traced) - self._weight.wait_us
        end = np.where(traced > self._host, busy, idle)
        # A wait lasts until the device is idle, whatever was taken off. How much longer than that
        # is not known from samples in which the device was idle at the return already.
        at_least: FloatArray = np.maximum(last, self._returned)
        return np.maximum(end, at_least)

    def _operation(self, place: int, launched_by: int | None) -> TimelineRow:
        operation: DeviceOperation = self._traced.operations[place]
        moved = self._moved[place]
        return _row(
            Lane.DEVICE,
            What.OPERATION,
            operation.name,
            moved.start,
            moved.end,
            queued_us=_moment(operation.queued_us, moved.call_shift),
            submitted_us=_moment(operation.submitted_us, moved.call_shift),
            launched_by=launched_by,
            moved_bytes=operation.moved_bytes,
        )


def _waits(name: str) -> bool:
    """Whether a call of CUDA may return only when the device has done something."""
    if "Synchronize" in name:
        return True
    return name.startswith(("cudaMemcpy", "cuMemcpy")) and "Async" not in name


def _row(
    lane: Lane, what: What, name: str, start: FloatArray, end: FloatArray, **more: Any
) -> TimelineRow:
    length = end - start
    low, high = np.percentile(length, [LOW, HIGH])
    begin = median(start)
    return TimelineRow(
        lane, what, name, begin, begin + median(length), float(low), float(high), **more
    )


def _add_code(rows: list[TimelineRow], start: FloatArray, end: FloatArray) -> None:
    """A row for the host's own code, if there is any to speak of."""
    if median(end - start) > 0:
        rows.append(_row(Lane.HOST, What.CODE, "host code", start, np.maximum(start, end)))


def _moment(samples: Sequence[float] | None, shift: FloatArray) -> float | None:
    return None if samples is None else median(_array(samples) - shift)


def _latency(rows: Sequence[TimelineRow]) -> float | None:
    for row in rows:
        if row.launched_by is not None:
            return row.start_us - rows[row.launched_by].start_us
    return None


def _busy(rows: Sequence[TimelineRow], returned_us: float) -> tuple[float, float]:
    """Time in which at least one operation runs, and the part of it before the return."""
    busy = hidden = at = 0.0
    for row in sorted(rows, key=lambda row: row.start_us):
        start, end = max(row.start_us, at), max(row.end_us, at)
        busy += end - start
        hidden += max(0.0, min(end, returned_us) - min(start, returned_us))
        at = end
    return busy, hidden


def _array(samples: Any) -> FloatArray:
    return np.asarray(samples, float)
