"""Traced steps without the time that tracing added to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bt_bench.analysis.profile.rows import Lane, RowKind, TimelineRow
from bt_bench.analysis.profile.weight import Weight
from bt_bench.analysis.statistics.samples import median
from bt_bench.results import DeviceOperation, FloatArray, TracedSteps

LOW, HIGH = 10.0, 90.0
"""The percentiles at the ends of a row's spread."""


@dataclass(frozen=True)
class _Moved:
    """An operation in all samples: its end as traced, and its times without the tracing's share.

    `call_shift` is by how much the call that enqueued it has moved forward when it did so.
    """

    traced_end: FloatArray
    start: FloatArray
    end: FloatArray
    call_shift: FloatArray


class CorrectedSteps:
    """Traced steps without the time that tracing added.

    The calls are processed in order, each with the operations that it enqueued. Each sample is
    processed by itself: samples differ in whether an operation waited for another one.

    Args:
        traced: with all calls and operations.
        weight: the time that tracing added.
    """

    def __init__(self, traced: TracedSteps, weight: Weight) -> None:
        self._traced, self._weight = traced, weight
        self._host, self._step = _array(traced.host_us), _array(traced.step_us)
        # The wait is a CUDA call itself, made after the step's call has returned.
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
        """Return the host's stretches in order, each operation behind the call that enqueued it."""
        rows: list[TimelineRow] = []
        shown: set[int] = set()
        at = np.zeros(len(self._returned))
        for call, (start, end) in zip(self._calls, self._spans, strict=True):
            _add_code(rows, at, start)
            what = RowKind.CALL if call.operation is None else RowKind.LAUNCH
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
        rows.append(_row(Lane.HOST, RowKind.WAIT, "wait for the device", self._returned, self._end))
        return rows

    def _go_through(self) -> FloatArray:
        """Move all calls and operations; return by how much the host has moved at the return."""
        enqueued = self._enqueued()
        shift = np.zeros(len(self._host))
        at = shift
        for place in enqueued.get(None, ()):
            self._move(place, shift, None, shift)
        for number, call in enumerate(self._calls):
            start, end = _array(call.start_us), _array(call.end_us)
            # If a call took less time than is taken off, it has no length: part of the tracing's
            # time lies outside of the record, in the host code that follows.
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
        """Return the operations that each call enqueued, by places; `None`: before the first call.

        If no record of a call belongs to an operation, as in a graph, it is attributed to the last
        call that had begun before it.
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
        """Move an operation forward with its call, but not before one that it came after.

        The stream of an operation is not known. Operations that overlap are on several streams; one
        that began when another had ended is taken to follow it.

        Args:
            place: of the operation.
            shift: by how much the enqueued operation has moved forward.
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
            # An operation enqueued in time also keeps its gap, which is the device's own.
            queued = last.traced_end > call_end
            start = np.maximum(start, last.end + np.where(queued, gap, np.minimum(gap, 0.0)))
        end = start + (traced_end - traced_start)
        self._moved[place] = _Moved(traced_end, start, end, shift)

    def _waited(self, start: FloatArray, end: FloatArray, shift: FloatArray) -> FloatArray:
        """Return how far the return of a call moves that may have waited for the device.

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
        """Return when the device is idle and the wait for it has returned."""
        idle = self._step - shift - self._weight.idle_us
        ends = list(self._moved.values())
        if not ends:
            return np.maximum(idle, self._returned)
        traced: FloatArray = np.max([moved.traced_end for moved in ends], axis=0)
        last: FloatArray = np.max([moved.end for moved in ends], axis=0)
        busy = last + (self._step - traced) - self._weight.wait_us
        end = np.where(traced > self._host, busy, idle)
        # A wait lasts at least until the device is idle. Any excess is unknown in samples whose
        # device was idle at the return already.
        at_least: FloatArray = np.maximum(last, self._returned)
        return np.maximum(end, at_least)

    def _operation(self, place: int, launched_by: int | None) -> TimelineRow:
        operation: DeviceOperation = self._traced.operations[place]
        moved = self._moved[place]
        return _row(
            Lane.DEVICE,
            RowKind.OPERATION,
            operation.name,
            moved.start,
            moved.end,
            queued_us=_moment(operation.queued_us, moved.call_shift),
            submitted_us=_moment(operation.submitted_us, moved.call_shift),
            launched_by=launched_by,
            moved_bytes=operation.moved_bytes,
        )


def _waits(name: str) -> bool:
    """Return whether a call of CUDA may return only when the device has done something."""
    if "Synchronize" in name:
        return True
    return name.startswith(("cudaMemcpy", "cuMemcpy")) and "Async" not in name


def _row(
    lane: Lane, what: RowKind, name: str, start: FloatArray, end: FloatArray, **more: Any
) -> TimelineRow:
    length = end - start
    low, high = np.percentile(length, [LOW, HIGH])
    begin = median(start)
    return TimelineRow(
        lane, what, name, begin, begin + median(length), float(low), float(high), **more
    )


def _add_code(rows: list[TimelineRow], start: FloatArray, end: FloatArray) -> None:
    """Append a row for the host's own code, if it takes any time."""
    if median(end - start) > 0:
        rows.append(_row(Lane.HOST, RowKind.CODE, "host code", start, np.maximum(start, end)))


def _moment(samples: Sequence[float] | None, shift: FloatArray) -> float | None:
    return None if samples is None else median(_array(samples) - shift)


def _array(samples: Any) -> FloatArray:
    return np.asarray(samples, float)
