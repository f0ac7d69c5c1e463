"""A timeline in Chrome's trace event format, which Perfetto opens (https://ui.perfetto.dev).

The format is described in Google's "Trace Event Format". Slices of a thread must nest, so
operations that overlap are put into threads of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from bt_bench.analysis import device_name
from bt_bench.analysis.statistics.samples import median
from bt_bench.report.profile.lanes import free_rows
from bt_bench.results import (
    DeviceOperation,
    Timeline,
    TracedSteps,
    Tracing,
    VariantTimeline,
)

STEPS = 3
GAP_NS = 20_000
"""Time between the end of a step and the start of the next."""

NEAR_SHARE = 0.2
"""Share of a variant's samples, nearest to the median, that steps are chosen from."""

_WAIT = "wait for the device"
_FLOW = "launch"
_TIMES = (
    "Times include the cost of the profiler. The steps are samples near the median of each "
    "variant, "
    "which all begin at the same time. Moments among the arguments are in µs from the step's call."
)

_Event = dict[str, Any]

# The threads of a variant, from top to bottom; each has room for more of its kind.
_THREADS = ("host", "command buffer", "NVTX on the device", "device")
_HOST, _BUFFER, _RANGE, _DEVICE = range(len(_THREADS))
_PER_KIND = 1000


def trace_events(timeline: Timeline, steps: int = STEPS) -> dict[str, Any]:
    """Return a few steps of each variant as a trace, one process per variant.

    All times are from steps whose calls and operations were recorded; a variant without such steps
    is left out. A step of a variant has at most 3 events, plus 1 for each call of the CUDA API, 2
    for each call that enqueues something, and 3 for each operation. The process and each of its
    threads have 2 more, once.

    Args:
        timeline: timeline of a case's step.
        steps: number of samples of each variant; fewer if it has fewer.

    Raises:
        ValueError: if `steps` is not positive.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    flows = count(1)
    processes: list[_Process] = []
    for variant in timeline.variants:
        traced = variant.of(Tracing.ALL)
        if traced is not None and traced.step_us:
            samples = _near_median(traced.step_us, steps)
            processes.append(_Process(len(processes) + 1, variant, traced, samples, flows))
    begin_ns = 0
    for place in range(steps):
        extents = [process.extent_ns(place) for process in processes if process.has(place)]
        if not extents:
            break
        # Clocks that differ a little can put a moment before the step's call.
        begin_ns -= min(first for first, _ in extents)
        for process in processes:
            if process.has(place):
                process.add_step(place, begin_ns)
        begin_ns += max(last for _, last in extents) + GAP_NS
    return {
        "traceEvents": [event for process in processes for event in process.events()],
        "displayTimeUnit": "ns",
        "otherData": {
            "bt_bench": timeline.environment.bt_bench,
            "config": timeline.config,
            "case": timeline.case,
            "operation": str(timeline.operation),
            "step": timeline.step,
            "num_steps": timeline.num_steps,
            "device": device_name(timeline.environment) or "unknown",
            "source": timeline.source,
            "missing": list(timeline.missing),
            "times": _TIMES,
        },
    }


def trace_json(timeline: Timeline) -> str:
    """Return the trace of `trace_events` as a JSON text in one line, in ASCII."""
    return json.dumps(trace_events(timeline), separators=(",", ":")) + "\n"


def _near_median(samples: Sequence[float], number: int) -> list[int]:
    """Return the places of samples near the median, in order and evenly spread."""
    middle = median(samples)
    nearest = sorted(range(len(samples)), key=lambda place: abs(samples[place] - middle))
    if number == 1:
        return nearest[:1]
    near = sorted(nearest[: max(number, round(NEAR_SHARE * len(samples)))])
    if len(near) <= number:
        return near
    return [near[place * (len(near) - 1) // (number - 1)] for place in range(number)]


@dataclass
class _Process:
    """The events of a variant.

    Args:
        pid: number of the process, from 1.
        variant: the variant of the steps.
        traced: its steps with calls and operations.
        samples: places of the steps that are shown.
        flows: numbers of the arrows, which all processes share.
    """

    pid: int
    variant: VariantTimeline
    traced: TracedSteps
    samples: Sequence[int]
    flows: Iterator[int]
    _threads: set[tuple[int, int]] = field(default_factory=set)
    _slices: list[_Event] = field(default_factory=list)

    def has(self, place: int) -> bool:
        """Return whether the variant has a step at that place."""
        return place < len(self.samples)

    def extent_ns(self, place: int) -> tuple[int, int]:
        """Return the first and the last moment of a step in ns, from its call."""
        sample = self.samples[place]
        moments = [0.0, self.traced.step_us[sample], self.traced.host_us[sample]]
        for operation in self.traced.operations:
            for times in (
                operation.queued_us,
                operation.submitted_us,
                operation.start_us,
                operation.end_us,
            ):
                moments += [] if times is None else [times[sample]]
        return _ns(min(moments)), _ns(max(moments))

    def events(self) -> Iterator[_Event]:
        """Yield the names of the process and of its threads, then all slices and arrows."""
        names = {"process_name": {"name": self.variant.name}}
        yield from self._metadata({**names, "process_sort_index": {"sort_index": self.pid}})
        for kind, row in sorted(self._threads):
            name = _THREADS[kind] + (f" {row + 1}" if row else "")
            tid = self._tid(kind, row)
            sort = {"sort_index": kind * _PER_KIND + row}
            yield from self._metadata(
                {"thread_name": {"name": name}, "thread_sort_index": sort}, tid
            )
        yield from self._slices

    def add_step(self, place: int, begin_ns: int) -> None:
        """Add the slices and arrows of a step.

        Args:
            place: index among the steps that are shown.
            begin_ns: start of the step in the trace.
        """
        sample = self.samples[place]
        calls = self._add_host(sample, begin_ns)
        starts = self._add_device(sample, begin_ns)
        self._add_buffer(sample, begin_ns)
        for call, (call_start, _) in zip(self.traced.calls, calls, strict=True):
            if call.operation is not None and call.operation < len(starts):
                self._add_flow(begin_ns + call_start, call.operation, starts)

    def _add_host(self, sample: int, begin_ns: int) -> list[tuple[int, int]]:
        """Add the step's call and the wait after it; return start and end of each CUDA call."""
        host, step = _ns(self.traced.host_us[sample]), _ns(self.traced.step_us[sample])
        step = max(host, step)
        thread = self._thread(_HOST)
        args = {
            "sample": sample,
            "host_us": self.traced.host_us[sample],
            "step_us": self.traced.step_us[sample],
        }
        calls = self._within(sample, host, step)
        self._add(thread, self.variant.nvtx_range, "operation", begin_ns, (0, host), args)
        waits = False
        for call, span in zip(self.traced.calls, calls, strict=True):
            if span[0] >= host and not waits:
                self._add(thread, _WAIT, "wait", begin_ns, (host, step))
                waits = True
            self._add(
                thread,
                call.name,
                "cuda_api",
                begin_ns,
                span,
                {"api": call.api, "records": call.records},
            )
        if not waits:
            self._add(thread, _WAIT, "wait", begin_ns, (host, step))
        return calls

    def _within(self, sample: int, host: int, step: int) -> list[tuple[int, int]]:
        """Return start and end of each CUDA call, clamped to the step's call or to the wait.

        The records have another clock than the step: a call can seem to end a little after the
        slice that it belongs to.
        """
        found = []
        at = 0
        for call in self.traced.calls:
            start, end = _ns(call.start_us[sample]), _ns(call.end_us[sample])
            low, high = (0, host) if start + end < 2 * host else (host, step)
            low = max(low, at)
            # The calls are in order; `at` is behind `high` only if it was made so above.
            high = max(low, high)
            start = min(max(start, low), high)
            end = min(max(end, start), high)
            found.append((start, end))
            at = end
        return found

    def _add_device(self, sample: int, begin_ns: int) -> list[tuple[int, int, int]]:
        """Add the operations and the range around them; return thread, start and end of each."""
        operations = self.traced.operations
        spans = [(_ns(o.start_us[sample]), _ns(o.end_us[sample])) for o in operations]
        spans = [(start, max(start, end)) for start, end in spans]
        if not spans:
            return []
        around = min(start for start, _ in spans), max(end for _, end in spans)
        self._add(self._thread(_RANGE), self.variant.nvtx_range, "operation", begin_ns, around)
        launched = {
            call.operation: call.start_us[sample]
            for call in reversed(self.traced.calls)
            if call.operation is not None
        }
        found = []
        for place, (span, row) in enumerate(zip(spans, free_rows(spans), strict=True)):
            operation = operations[place]
            thread = self._thread(_DEVICE, row)
            args = _operation_args(operation, sample, launched.get(place))
            self._add(thread, operation.name, operation.kind, begin_ns, span, args)
            found.append((thread, begin_ns + span[0], begin_ns + span[1]))
        return found

    def _add_buffer(self, sample: int, begin_ns: int) -> None:
        """Add the phases of each command before its start: queued, and submitted if known."""
        known = [
            (operation, moments)
            for operation in self.traced.operations
            if (moments := _moments(operation, sample)) is not None
        ]
        rows = free_rows([(moments[0], moments[-1]) for _, moments in known])
        for (operation, moments), row in zip(known, rows, strict=True):
            thread = self._thread(_BUFFER, row)
            parts = ("queued", "submitted") if len(moments) == 3 else ("queued",)
            for part, start, end in zip(parts, moments, moments[1:], strict=False):
                self._add(thread, f"{part}: {operation.name}", "command", begin_ns, (start, end))

    def _add_flow(self, from_ns: int, place: int, starts: Sequence[tuple[int, int, int]]) -> None:
        thread, start, end = starts[place]
        to_ns = max(start, from_ns)
        # An arrow that led back in time, or to nothing, would be refused.
        if to_ns > end:
            return
        shared = {"name": _FLOW, "cat": _FLOW, "id": next(self.flows), "pid": self.pid}
        self._slices.append({"ph": "s", **shared, "tid": self._thread(_HOST), "ts": from_ns / 1e3})
        self._slices.append({"ph": "f", "bp": "e", **shared, "tid": thread, "ts": to_ns / 1e3})

    def _add(
        self,
        thread: int,
        name: str,
        category: str,
        begin_ns: int,
        span: tuple[int, int],
        args: Mapping[str, Any] | None = None,
    ) -> None:
        start, end = span
        event = {
            "ph": "X",
            "name": name,
            "cat": category,
            "pid": self.pid,
            "tid": thread,
            "ts": (begin_ns + start) / 1e3,
            "dur": (end - start) / 1e3,
        }
        self._slices.append(event if args is None else {**event, "args": dict(args)})

    def _thread(self, kind: int, row: int = 0) -> int:
        self._threads.add((kind, row))
        return self._tid(kind, row)

    def _tid(self, kind: int, row: int) -> int:
        # Numbers that no other process has, as on a real machine.
        return (self.pid * len(_THREADS) + kind) * _PER_KIND + row

    def _metadata(
        self, named: Mapping[str, Mapping[str, Any]], tid: int | None = None
    ) -> Iterator[_Event]:
        of_thread = {} if tid is None else {"tid": tid}
        for name, args in named.items():
            yield {"ph": "M", "name": name, "pid": self.pid, **of_thread, "args": dict(args)}


def _operation_args(
    operation: DeviceOperation, sample: int, launched_us: float | None
) -> dict[str, Any]:
    """Return the known facts on an operation besides its start and end."""
    start = operation.start_us[sample]
    found = {
        "moved_bytes": operation.moved_bytes,
        "queued_us": None if operation.queued_us is None else operation.queued_us[sample],
        "submitted_us": None if operation.submitted_us is None else operation.submitted_us[sample],
        "latency_us": None if launched_us is None else round(start - launched_us, 3),
    }
    return {name: value for name, value in found.items() if value is not None}


def _moments(operation: DeviceOperation, sample: int) -> list[int] | None:
    """Return when a command was queued, submitted (if known) and begun, in ns, if known at all."""
    if operation.queued_us is None:
        return None
    start = _ns(operation.start_us[sample])
    queued = min(_ns(operation.queued_us[sample]), start)
    if operation.submitted_us is None:
        return [queued, start]
    return [queued, min(max(_ns(operation.submitted_us[sample]), queued), start), start]


def _ns(time_us: float) -> int:
    # Whole ns, the unit of the records: equal starts and ends stay equal.
    return round(time_us * 1e3)
