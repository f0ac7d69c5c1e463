"""What a timeline says: where each microsecond of a step goes, without the profiler's own weight.

A profiler makes each call of the CUDA API longer. How much is measured on empty calls in the same
rounds, and taken off every call of a step; what follows a call moves forward by as much. The step
that is left must take as long as one that no profiler has seen. What does not fit is the residual.
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
        launch_us: to a call that enqueues a kernel.
        call_us: to each record of another call.
        wait_us: to the wait after the call has returned.
    """

    launch_us: float
    call_us: float
    wait_us: float

    def of(self, call: HostCall) -> float:
        """What it adds to a call, with all that this calls itself."""
        if call.operation is None:
            return call.records * self.call_us
        return self.launch_us + (call.records - 1) * self.call_us


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
        step_us: the whole step, measured before any profiler was loaded.
        step_low_us: low end of its spread.
        step_high_us: high end of it.
        host_us: time until the call returned, likewise.
        predicted_us: the step as it follows from the traced ones; `None` if these are not known.
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
        floor_us: an empty launch and the wait for it, measured in the same rounds.
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
        plain, traced = (
            timeline.empty_calls(name, Tracing.NONE),
            timeline.empty_calls(name, tracing),
        )
        if plain is None or traced is None:
            return None
        host = median(traced.host_us) - median(plain.host_us)
        wait = median(_wait(traced)) - median(_wait(plain))
        found[name] = host, wait, traced.records
    launch_us, wait_us, launch_records = found["launch"]
    query_us, _, query_records = found["query"]
    call_us = max(0.0, query_us / query_records)
    # An empty kernel by Triton's call may have records beside that of the launch.
    return Weight(max(0.0, launch_us - (launch_records - 1) * call_us), call_us, wait_us)


def _wait(steps: Any) -> list[float]:
    return [step - host for step, host in zip(steps.step_us, steps.host_us, strict=True)]


def explain(timeline: Timeline, variant: VariantTimeline) -> Explained | None:
    """Where the time of a variant's step goes; `None` if it was not timed and traced."""
    plain, traced = variant.of(Tracing.NONE), variant.of(Tracing.ALL)
    weight = weight_of(timeline, Tracing.ALL)
    empty = timeline.empty_calls("launch", Tracing.NONE)
    if plain is None or traced is None or weight is None or empty is None or not traced.host_us:
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
    return Explained(
        name=variant.name,
        step_us=median(plain.step_us),
        step_low_us=float(low),
        step_high_us=float(high),
        host_us=median(plain.host_us),
        predicted_us=end,
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
        floor_us=median(empty.step_us),
    )


class _Corrected:
    """Traced steps without what tracing added.

    Args:
        traced: with all calls and operations.
        weight: what that added.
    """

    def __init__(self, traced: TracedSteps, weight: Weight) -> None:
        self._traced = traced
        host, step = _array(traced.host_us), _array(traced.step_us)
        # The wait is a call of CUDA itself, behind the call's return.
        self._calls = [call for call in traced.calls if median(_array(call.start_us) - host) < 0]
        added = [weight.of(call) for call in self._calls]
        self._before = np.concatenate([[0.0], np.cumsum(added)])
        self._added = added
        self._returned = host - self._before[-1]
        self._end = step - self._before[-1] - weight.wait_us
        self.returned_us = median(self._returned)
        self.end_us = median(self._end)

    def rows(self) -> list[TimelineRow]:
        """The host's stretches in order, each operation behind the call that enqueued it."""
        rows: list[TimelineRow] = []
        operations = self._operations()
        shown: set[int] = set()
        at = np.zeros(len(self._returned))
        for place, call in enumerate(self._calls):
            start = _array(call.start_us) - self._before[place]
            end = _array(call.end_us) - self._before[place + 1]
            _add_code(rows, at, start)
            what = What.CALL if call.operation is None else What.LAUNCH
            rows.append(_row(Lane.HOST, what, call.name, start, np.maximum(start, end)))
            if call.operation is not None and call.operation not in shown:
                shown.add(call.operation)
                rows.append(self._operation(operations, call.operation, len(rows) - 1))
            at = np.maximum(start, end)
        _add_code(rows, at, self._returned)
        rows += [
            self._operation(operations, place, None)
            for place in range(len(operations))
            if place not in shown
        ]
        rows.append(_row(Lane.HOST, What.WAIT, "wait for the device", self._returned, self._end))
        return rows

    def _operations(self) -> list[tuple[FloatArray, FloatArray, float]]:
        """Starts and ends of the operations, and by how much each was moved forward.

        An operation that waited for its call begins as much earlier as the call; one that waited
        for the operation before it stays behind that.
        """
        shifts = {
            call.operation: self._before[place + 1]
            for place, call in enumerate(self._calls)
            if call.operation is not None
        }
        launched = {
            call.operation: _array(call.end_us)
            for call in self._calls
            if call.operation is not None
        }
        found: list[tuple[FloatArray, FloatArray, float]] = []
        shift = 0.0
        before_end: FloatArray | None = None
        for place, operation in enumerate(self._traced.operations):
            start, end = _array(operation.start_us), _array(operation.end_us)
            own = float(shifts.get(place, shift))
            waited = (
                before_end is not None
                and place in launched
                and median(before_end - launched[place]) > 0
            )
            shift = shift if waited else own
            found.append((start - shift, end - shift, shift))
            before_end = end
        return found

    def _operation(
        self,
        operations: Sequence[tuple[FloatArray, FloatArray, float]],
        place: int,
        launched_by: int | None,
    ) -> TimelineRow:
        operation: DeviceOperation = self._traced.operations[place]
        start, end, shift = operations[place]
        return _row(
            Lane.DEVICE,
            What.OPERATION,
            operation.name,
            start,
            end,
            queued_us=_moment(operation.queued_us, shift),
            submitted_us=_moment(operation.submitted_us, shift),
            launched_by=launched_by,
            moved_bytes=operation.moved_bytes,
        )


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


def _moment(samples: Sequence[float] | None, shift: float) -> float | None:
    return None if samples is None else median(samples) - shift


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
