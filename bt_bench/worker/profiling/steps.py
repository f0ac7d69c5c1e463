"""The calls and operations of each step, in samples, from the records of passes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bt_bench.results import DeviceOperation, HostCall, TracedSteps, Tracing
from bt_bench.worker.profiling.records import ApiRecord, DeviceRecord, PassRecords

LEAST_SHARE = 0.2
"""The smallest share of steps that must have made the same calls.

A step that asks an event whether it may use a buffer again, for example, makes several sequences of
calls, each often.
"""

_DIGITS = 3  # of µs: the records are in whole ns


class RecordsLostError(Exception):
    """The records of a pass are not complete."""


@dataclass(frozen=True)
class Ran:
    """One step that was run: its time, by the clock of the records, and its duration.

    Args:
        start_ns: time of its call.
        end_ns: time when the device was idle again.
        host_us: time until the call had returned.
        step_us: time until the device was idle.
        turn: the turn that it was run in.
    """

    start_ns: int
    end_ns: int
    host_us: float
    step_us: float
    turn: int = 0


@dataclass(frozen=True)
class _Call:
    """An outermost call, the number of its records, and the operation that it enqueued."""

    record: ApiRecord
    records: int
    operation: int | None


@dataclass(frozen=True)
class _Recorded:
    """A step with its records."""

    ran: Ran
    calls: list[_Call]
    operations: list[DeviceRecord]

    @property
    def shape(self) -> tuple[object, ...]:
        """The properties that all samples of a step share."""
        return (
            tuple((c.record.name, c.records, c.operation) for c in self.calls),
            tuple((o.kind, o.name, o.moved_bytes) for o in self.operations),
        )


class InOrder:
    """The records of all passes, sorted by their start.

    Args:
        taken: the records, in any order.
    """

    def __init__(self, taken: PassRecords) -> None:
        self.dropped = taken.dropped
        self.unreadable = taken.unreadable
        # An outer call comes before the calls that it makes, though these are recorded first.
        self._calls = sorted(
            taken.calls, key=lambda call: (call.start_ns, -call.end_ns, call.api == "driver")
        )
        self._operations = sorted(taken.operations, key=lambda operation: operation.start_ns)
        self._call_starts = [call.start_ns for call in self._calls]
        self._operation_starts = [operation.start_ns for operation in self._operations]

    def of(self, ran: Ran) -> _Recorded:
        """Return a step with its records."""
        calls, operations = (
            slice(bisect_left(starts, ran.start_ns), bisect_left(starts, ran.end_ns))
            for starts in (self._call_starts, self._operation_starts)
        )
        # The device is idle before and after a step, so what begins within it belongs to it.
        of_step = self._operations[operations]
        return _Recorded(ran, _outermost(self._calls[calls], of_step), of_step)


def traced_steps(tracing: Tracing, ran: Sequence[Ran], records: InOrder) -> TracedSteps:
    """Return the samples of a variant, from the records of the passes that ran its steps.

    Args:
        tracing: the kind of tracing.
        ran: the steps of the variant.
        records: the records of these steps, and of other variants' steps.

    Raises:
        RecordsLostError: if records were dropped, or if fewer than a fifth of the steps have the
            same calls and operations.
    """
    if tracing is not Tracing.ALL:
        return _merged(tracing, [_Recorded(each, [], []) for each in ran], 0)
    if records.dropped:
        why = "" if records.unreadable is None else f"; of one buffer: {records.unreadable}"
        raise RecordsLostError(f"the profiler lost {records.dropped} records{why}")
    found = [records.of(each) for each in ran]
    if not found:
        return _merged(tracing, [], 0)
    shapes = Counter(step.shape for step in found)
    shape, most = shapes.most_common(1)[0]
    if most < LEAST_SHARE * len(found):
        raise RecordsLostError(
            f"of {len(found)} steps the profiler recorded {len(shapes)} different sequences of "
            f"calls and operations, and none of them in more than {most}"
        )
    kept = [step for step in found if step.shape == shape]
    return _merged(tracing, kept, len(found) - len(kept))


def _outermost(calls: Sequence[ApiRecord], operations: Sequence[DeviceRecord]) -> list[_Call]:
    """Return the outermost calls, with their numbers of records and enqueued operations."""
    places: dict[int, int] = {}
    for number, operation in enumerate(operations):
        places.setdefault(operation.correlation, number)  # a graph has many of one call
    found: list[_Call] = []
    for call in calls:
        place = places.get(call.correlation)
        if found and call.end_ns <= found[-1].record.end_ns:
            outer = found[-1]
            known = outer.operation if outer.operation is not None else place
            found[-1] = _Call(outer.record, outer.records + 1, known)
        else:
            found.append(_Call(call, 1, place))
    return found


def _merged(tracing: Tracing, steps: Sequence[_Recorded], left_out: int) -> TracedSteps:
    return TracedSteps(
        tracing=tracing,
        host_us=[round(step.ran.host_us, _DIGITS) for step in steps],
        step_us=[round(step.ran.step_us, _DIGITS) for step in steps],
        turns=[step.ran.turn for step in steps],
        calls=[_call(steps, place) for place in range(len(steps[0].calls))] if steps else [],
        operations=(
            [_operation(steps, place) for place in range(len(steps[0].operations))] if steps else []
        ),
        left_out=left_out,
    )


def _call(steps: Sequence[_Recorded], place: int) -> HostCall:
    first = steps[0].calls[place]
    records = [(step.ran, step.calls[place].record) for step in steps]
    return HostCall(
        name=first.record.name,
        api=first.record.api,
        records=first.records,
        operation=first.operation,
        start_us=[_since(ran, record.start_ns) for ran, record in records],
        end_us=[_since(ran, record.end_ns) for ran, record in records],
    )


def _operation(steps: Sequence[_Recorded], place: int) -> DeviceOperation:
    records = [(step.ran, step.operations[place]) for step in steps]
    first = records[0][1]
    queued = [_since(ran, r.queued_ns) for ran, r in records if r.queued_ns is not None]
    submitted = [_since(ran, r.submitted_ns) for ran, r in records if r.submitted_ns is not None]
    return DeviceOperation(
        kind=first.kind,
        name=first.name,
        queued_us=queued if len(queued) == len(records) else None,
        submitted_us=submitted if len(submitted) == len(records) else None,
        start_us=[_since(ran, record.start_ns) for ran, record in records],
        end_us=[_since(ran, record.end_ns) for ran, record in records],
        moved_bytes=first.moved_bytes,
    )


def _since(ran: Ran, moment_ns: int) -> float:
    return round((moment_ns - ran.start_ns) / 1e3, _DIGITS)
