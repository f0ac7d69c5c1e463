"""From CUPTI's activity records to the device times and the launch census of a range."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch._C._autograd import DeviceType

from bt_bench.names import Operation
from bt_bench.results import (
    Cache,
    LaunchCensus,
    LaunchCount,
    LaunchPath,
    Load,
    Method,
    Plan,
    Quantity,
    Series,
)
from bt_bench.worker.measuring.device_kernels import FLUSH_KERNEL_NAME, SPIN_KERNEL_NAME
from bt_bench.worker.measuring.methods.probes import eager_series
from bt_bench.worker.measuring.rounds import Window

STEP_RANGE = "bt_bench_step_"  # the call and the synchronisation after it
CALL_RANGE = "bt_bench_call_"  # the call alone


@dataclass(frozen=True)
class Setting:
    """The condition under which the operation is profiled, and the quantities taken then."""

    load: Load
    l2: Cache
    quantities: tuple[Quantity, ...]

    @property
    def series(self) -> tuple[Series, ...]:
        """A series per quantity."""
        return eager_series(
            self.quantities, Method.PROFILER, LaunchPath.JIT, load=self.load, l2=self.l2
        )


_DEVICE_TIMES = (Quantity.GPU_US, Quantity.SPAN_US, Quantity.GAP_US)
IDLE = Setting(Load.IDLE, Cache.HOT, (*_DEVICE_TIMES, Quantity.LAST_US))


class ProfilerIncompleteError(Exception):
    """The profiler's records cannot be right; it drops some now and then without saying so."""


@dataclass(frozen=True)
class Activity:
    """One device operation, with times of the host clock in ns."""

    kind: str
    name: str
    start_ns: int
    duration_ns: int

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return self.start_ns + self.duration_ns


def settings_of(plan: Plan) -> list[Setting]:
    """The conditions that a plan wants profiled; an idle device is always one."""
    busy = [Setting(Load.BUSY, l2, _DEVICE_TIMES) for l2 in plan.l2]
    return [IDLE, *(busy if Load.BUSY in plan.loads else ())]


def activities_by_range(
    profiler: Any, busy: Sequence[bool]
) -> tuple[list[list[Activity]], set[int]]:
    """Sorts device activities into the host ranges that caused them, by time.

    The device has nothing but the harness's own work to do before each range, and nothing after
    it, so every activity of the step lies inside its range.

    Args:
        profiler: torch's, after it has stopped.
        busy: for each range, whether a queue was ahead of it.

    Returns:
        The activities of each range, and the ranges in which a busy device had finished its queue
        before the call returned.
    """
    num_ranges = len(busy)
    steps: dict[int, tuple[int, int]] = {}
    returns: dict[int, int] = {}
    queue_ends: list[int] = []
    activities: list[Activity] = []
    for event in profiler.profiler.kineto_results.events():
        on_device = event.device_type() == DeviceType.CUDA
        name = event.name()
        start, end = event.start_ns(), event.start_ns() + event.duration_ns()
        if name.startswith(STEP_RANGE):
            if not on_device:
                steps[int(name[len(STEP_RANGE) :])] = (start, end)
        elif name.startswith(CALL_RANGE):
            if not on_device:
                returns[int(name[len(CALL_RANGE) :])] = end
        elif on_device and name.startswith(SPIN_KERNEL_NAME):
            queue_ends.append(end)
        elif on_device and not name.startswith(FLUSH_KERNEL_NAME):
            activities.append(Activity(_kind(name), name, start, end - start))
    if len(steps) != num_ranges or len(returns) != num_ranges:
        raise ProfilerIncompleteError(f"{len(steps)} of {num_ranges} ranges were recorded")
    behind_queues = [index for index in range(num_ranges) if busy[index]]
    if len(queue_ends) != len(behind_queues):
        raise ProfilerIncompleteError(
            f"{len(queue_ends)} of {len(behind_queues)} queues were recorded"
        )
    late = {
        index
        for index, end in zip(behind_queues, sorted(queue_ends), strict=True)
        if end < returns[index]
    }
    ordered = [steps[index] for index in range(num_ranges)]
    starts = [start for start, _ in ordered]
    by_range: list[list[Activity]] = [[] for _ in range(num_ranges)]
    for activity in sorted(activities, key=lambda activity: activity.start_ns):
        place = bisect_right(starts, activity.start_ns) - 1
        if place >= 0 and activity.start_ns <= ordered[place][1]:
            by_range[place].append(activity)
    return by_range, late


def census_of(
    window: Window, name: str, replays: Sequence[list[list[Activity]]]
) -> LaunchCensus | str:
    """Launches of each step, if all passes agree on them."""
    census = [_counts(step) for step in replays[0]]
    for index, counts in enumerate(census):
        if not counts and not _may_be_empty(window, index):
            return f"step {index} of {name}: no device operation was recorded"
        for replay in replays[1:]:
            if _counts(replay[index]) != counts:
                return (
                    f"step {index} of {name}: one pass recorded {dict(counts)}, "
                    f"another {dict(_counts(replay[index]))}"
                )
    launches = [
        [
            LaunchCount.model_validate({"kind": kind, "name": kernel, "count": count})
            for (kind, kernel), count in sorted(step.items())
        ]
        for step in census
    ]
    return LaunchCensus(counted_by="cupti", steps=launches)


def _may_be_empty(window: Window, index: int) -> bool:
    """Whether a step may launch nothing: only one that applies no writes."""
    staged = any(any(map(len, append.block_ids)) for append in window.steps[index].appends)
    return window.operation is Operation.APPLY and not staged


def _kind(name: str) -> str:
    if name.startswith("Memcpy"):
        return "copy"
    return "memset" if name.startswith("Memset") else "kernel"


def _counts(activities: list[Activity]) -> Counter[tuple[str, str]]:
    return Counter((activity.kind, activity.name) for activity in activities)


def times_ns(activities: list[Activity]) -> dict[Quantity, int]:
    """Busy time, span, gaps and the last operation's time; activities are sorted by start."""
    if not activities:
        return dict.fromkeys((*_DEVICE_TIMES, Quantity.LAST_US), 0)
    last = max(activities, key=lambda activity: activity.end_ns)
    span = last.end_ns - activities[0].start_ns
    busy = _busy_ns(activities)
    return {
        Quantity.GPU_US: busy,
        Quantity.SPAN_US: span,
        Quantity.GAP_US: span - busy,
        Quantity.LAST_US: last.duration_ns,
    }


def _busy_ns(activities: list[Activity]) -> int:
    """Length of the union of the activities' intervals; they are sorted by start."""
    busy = 0
    end = 0
    for activity in activities:
        busy += max(0, activity.end_ns - max(activity.start_ns, end))
        end = max(end, activity.end_ns)
    return busy
