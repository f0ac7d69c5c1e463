"""Device times and the launch census of a range, from CUPTI's activity records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bt_bench.results import (
    Cache,
    LaunchCensus,
    LaunchPath,
    Load,
    Method,
    Plan,
    Quantity,
    Series,
)
from bt_bench.worker.measuring.device_kernels import FLUSH_KERNEL_NAME, SPIN_KERNEL_NAME
from bt_bench.worker.measuring.methods.interpreter import Counts, launch_census
from bt_bench.worker.measuring.probes import eager_series
from bt_bench.worker.measuring.profiler_session import DeviceActivity, Recorded
from bt_bench.worker.measuring.rounds import ReplayWindow


@dataclass(frozen=True)
class Setting:
    """A condition for profiling the operation, and the quantities taken under it."""

    load: Load
    l2: Cache
    quantities: tuple[Quantity, ...]

    @property
    def series(self) -> tuple[Series, ...]:
        """Return a series per quantity."""
        return eager_series(
            self.quantities, Method.PROFILER, LaunchPath.JIT, load=self.load, l2=self.l2
        )


_DEVICE_TIMES = (Quantity.GPU_US, Quantity.SPAN_US, Quantity.GAP_US)
IDLE = Setting(Load.IDLE, Cache.HOT, (*_DEVICE_TIMES, Quantity.LAST_US))


class ProfilerIncompleteError(Exception):
    """Unusable records: the profiler occasionally drops some silently."""


def settings_of(plan: Plan) -> list[Setting]:
    """Return the conditions that a plan wants profiled, always including an idle device."""
    busy = [Setting(Load.BUSY, l2, _DEVICE_TIMES) for l2 in plan.l2]
    return [IDLE, *(busy if Load.BUSY in plan.loads else ())]


def activities_by_range(
    recorded: Recorded, busy: Sequence[bool]
) -> tuple[list[list[DeviceActivity]], set[int]]:
    """Return the activities of each range, without the harness's own, which kept the device busy.

    Args:
        recorded: the records of a profiler session.
        busy: for each range, whether a queue was ahead of it.

    Returns:
        The activities of each range, and the ranges whose queue ended on the device before the call
        returned.

    Raises:
        ProfilerIncompleteError: when records of ranges or queues are missing.
    """
    num_ranges = len(busy)
    num_steps, returns_ns = len(recorded.steps), recorded.returns_ns
    if not num_steps == len(returns_ns) == num_ranges:
        raise ProfilerIncompleteError(f"{num_steps} of {num_ranges} ranges were recorded")
    behind_queues = [index for index in range(num_ranges) if busy[index]]
    queue_ends = sorted(
        activity.end_ns
        for activity in recorded.activities
        if activity.name.startswith(SPIN_KERNEL_NAME)
    )
    if len(queue_ends) != len(behind_queues):
        raise ProfilerIncompleteError(
            f"{len(queue_ends)} of {len(behind_queues)} queues were recorded"
        )
    late = {
        index
        for index, end_ns in zip(behind_queues, queue_ends, strict=True)
        if end_ns < returns_ns[index]
    }
    of_harness = (SPIN_KERNEL_NAME, FLUSH_KERNEL_NAME)
    by_range = [
        [activity for activity in of_range if not activity.name.startswith(of_harness)]
        for of_range in recorded.by_range(num_ranges)
    ]
    return by_range, late


def census_of(
    window: ReplayWindow, name: str, replays: Sequence[list[list[DeviceActivity]]]
) -> LaunchCensus | str:
    """Return the launches of each step if all passes agree on them, else the reason they do not."""
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
    return launch_census("cupti", census)


def _may_be_empty(window: ReplayWindow, index: int) -> bool:
    """Return whether a step may launch nothing, according to the suite."""
    driver = window.instances[0][0].driver
    return driver.may_be_empty(window.operation, window.steps[index])


def _counts(activities: list[DeviceActivity]) -> Counts:
    return Counter((activity.kind, activity.name) for activity in activities)


def times_ns(activities: list[DeviceActivity]) -> dict[Quantity, int]:
    """Return busy time, span, gaps and the last operation's time of activities sorted by start."""
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


def _busy_ns(activities: list[DeviceActivity]) -> int:
    """Return the length of the union of the intervals of activities sorted by start."""
    busy = 0
    end = 0
    for activity in activities:
        busy += max(0, activity.end_ns - max(activity.start_ns, end))
        end = max(end, activity.end_ns)
    return busy
