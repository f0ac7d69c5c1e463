"""Device operations of single calls, from CUPTI's activity records."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

CALL_RANGE = "bt_bench_profiled_"


@dataclass(frozen=True)
class DeviceRecord:
    """One device operation that was recorded.

    Args:
        name: the kernel's name, or `Memcpy …` or `Memset …`.
        duration_us: how long it ran on the device.
    """

    name: str
    duration_us: float


def profile_calls(
    calls: Sequence[Callable[[], object]], synchronize: Callable[[], object]
) -> list[list[DeviceRecord]]:
    """Makes each call on an idle device under the profiler.

    Returns:
        Per call its device operations, in the order in which they began. The profiler drops
        records now and then without saying so: a caller that knows how many there must be should
        count them.
    """
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    # Without `acc_events` torch warns on every start about cycles, although there are none.
    with profile(activities=activities, acc_events=True) as profiler:
        for index, call in enumerate(calls):
            synchronize()
            with record_function(f"{CALL_RANGE}{index}"):
                call()
                synchronize()
    results: Any = profiler.profiler
    return records_by_call(results.kineto_results.events(), len(calls))


def records_by_call(events: Iterable[Any], num_calls: int) -> list[list[DeviceRecord]]:
    """Sorts device operations into the host ranges that caused them, by time.

    Args:
        events: those of `torch.profiler`'s Kineto results.
        num_calls: ranges that were opened; a range that was not recorded has no operations.
    """
    ranges: list[tuple[int, int, int]] = []
    operations: list[Any] = []
    for event in events:
        on_device = event.device_type() == DeviceType.CUDA
        if event.name().startswith(CALL_RANGE):
            if not on_device:  # the range is also shown on the device's time line
                start = event.start_ns()
                ranges.append((start, start + event.duration_ns(), _index_of(event.name())))
        elif on_device:
            operations.append(event)
    ranges.sort()
    starts = [start for start, _, _ in ranges]
    by_call: list[list[DeviceRecord]] = [[] for _ in range(num_calls)]
    for event in sorted(operations, key=lambda event: int(event.start_ns())):
        place = bisect_right(starts, event.start_ns()) - 1
        if place >= 0 and event.start_ns() <= ranges[place][1]:
            record = DeviceRecord(event.name(), event.duration_ns() / 1e3)
            by_call[ranges[place][2]].append(record)
    return by_call


def _index_of(name: str) -> int:
    return int(name[len(CALL_RANGE) :])
