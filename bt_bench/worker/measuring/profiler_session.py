"""Calls in numbered ranges under the profiler (CUPTI), and the device activities of each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile, record_function

from bt_bench.worker.measuring.ports import Call

STEP_RANGE = "bt_bench_step_"  # the call and the synchronisation after it
CALL_RANGE = "bt_bench_call_"  # the call alone


@dataclass(frozen=True)
class DeviceActivity:
    """One device operation, with times of the host clock in ns."""

    kind: str
    name: str
    start_ns: int
    duration_ns: int

    @property
    def end_ns(self) -> int:
        """Return when it ended."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True)
class Recorded:
    """The profiler's records of a session, with times of the host clock in ns.

    The profiler occasionally drops records silently: a caller that knows the expected number should
    count them.

    Args:
        steps: start and end of each recorded range, by its number.
        returns_ns: when the call of each range returned, by its number.
        activities: all device operations, in the order of their starts.
    """

    steps: dict[int, tuple[int, int]]
    returns_ns: dict[int, int]
    activities: list[DeviceActivity]

    def by_range(self, num_ranges: int) -> list[list[DeviceActivity]]:
        """Assign device activities to the host ranges that caused them, by time.

        Returns:
            The activities of each range, in order; a range that was not recorded has none.
        """
        ordered = sorted((*step, index) for index, step in self.steps.items())
        starts = [start for start, _, _ in ordered]
        found: list[list[DeviceActivity]] = [[] for _ in range(num_ranges)]
        for activity in self.activities:
            place = bisect_right(starts, activity.start_ns) - 1
            if place >= 0 and activity.start_ns <= ordered[place][1]:
                found[ordered[place][2]].append(activity)
        return found


def sort_events(events: Iterable[Any]) -> Recorded:
    """Separate ranges from device activities.

    Args:
        events: the events of the Kineto results of torch's profiler.
    """
    steps: dict[int, tuple[int, int]] = {}
    returns_ns: dict[int, int] = {}
    activities: list[DeviceActivity] = []
    for event in events:
        on_device = event.device_type() == DeviceType.CUDA
        name, start, duration = event.name(), event.start_ns(), event.duration_ns()
        if name.startswith((STEP_RANGE, CALL_RANGE)):
            if on_device:  # the range is also shown on the device's time line
                continue
            if name.startswith(STEP_RANGE):
                steps[int(name[len(STEP_RANGE) :])] = (start, start + duration)
            else:
                returns_ns[int(name[len(CALL_RANGE) :])] = start + duration
        elif on_device:
            activities.append(DeviceActivity(kind_of(name), name, start, duration))
    activities.sort(key=lambda activity: activity.start_ns)
    return Recorded(steps, returns_ns, activities)


class ProfilerSession:
    """A running profiler and the calls made under it; see `profiler_session`."""

    def __init__(self, profiler: Any, synchronize: Call) -> None:
        self._profiler = profiler
        self._synchronize = synchronize
        self._num_calls = 0

    def run(self, call: Call, *ahead: Call) -> None:
        """Make a call in the range of the next number, from 0, and wait for the device.

        Only the work enqueued ahead precedes the range on the device, and nothing follows it, so
        every activity of the call lies inside its range.

        Args:
            call: the call to profile.
            ahead: calls made before it on an idle device, outside the range.
        """
        self._synchronize()
        for one in ahead:
            one()
        index = self._num_calls
        self._num_calls += 1
        with record_function(f"{STEP_RANGE}{index}"):
            with record_function(f"{CALL_RANGE}{index}"):
                call()
            self._synchronize()

    def recorded(self) -> Recorded:
        """Return the records; call this after the session has ended."""
        return sort_events(self._profiler.kineto_results.events())


@contextmanager
def profiler_session(synchronize: Call) -> Iterator[ProfilerSession]:
    """Start the profiler, and have it record host ranges and device activities.

    Args:
        synchronize: waits until the device is idle.
    """
    # `torch.profiler.profile` is built on this one. It also imports torch's compiler and all of
    # torch.distributed, which takes ten seconds per process, and makes objects of all events.
    device = "cuda" if torch.cuda.is_available() else None
    with profile(use_kineto=True, use_device=device) as profiler:
        yield ProfilerSession(profiler, synchronize)


def kind_of(name: str) -> Literal["kernel", "copy", "memset"]:
    """Return the kind of a device operation, by its name in the profiler's records."""
    if name.startswith("Memcpy"):
        return "copy"
    return "memset" if name.startswith("Memset") else "kernel"
