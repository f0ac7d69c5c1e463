"""Counts and times device operations from CUPTI's activity records, in a pass of its own."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from bt_bench.arms import Arm, StepInputs
from bt_bench.measuring.timing import Window
from bt_bench.model import LaunchCensus, LaunchCount, Measurement, Operation, Quantity

RANGE = "bt_bench_range_"


class ProfilerIncompleteError(Exception):
    """The profiler's records cannot be right; it drops some now and then without saying so."""


@dataclass(frozen=True)
class Activity:
    """One device operation, with times of the host clock in ns."""

    kind: str
    name: str
    start_ns: int
    duration_ns: int


Replay = list[list[Activity]]  # the activities of each step
Profiled = tuple[LaunchCensus, Measurement]


def profile_window(window: Window, rounds: int, seed: int) -> dict[str, Profiled | str]:
    """Replays the window `rounds` times under the profiler, all arms side by side.

    Returns:
        Per variant, the census of the device operations of each step, and `gpu_us`: the time in
        which at least one of the step's operations ran, per round and step. Or the reason why its
        records cannot be right.

    Raises:
        ArmFailedError: when a variant raises.
    """
    orders = window.orders(random.Random(seed))
    replays: dict[str, list[Replay]] = {name: [] for name in window.names}
    for _ in range(rounds):
        try:
            replay = _profile_replay(window, next(orders))
        except ProfilerIncompleteError as error:
            return dict.fromkeys(window.names, str(error))
        for name, steps in replay.items():
            replays[name].append(steps)
    return {name: _summarize(window, name, found) for name, found in replays.items()}


def _summarize(window: Window, name: str, replays: Sequence[Replay]) -> Profiled | str:
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
    samples = [[_busy_ns(step) / 1e3 for step in replay] for replay in replays]
    launches = [
        [
            LaunchCount.model_validate({"kind": kind, "name": kernel, "count": count})
            for (kind, kernel), count in sorted(step.items())
        ]
        for step in census
    ]
    return (
        LaunchCensus(counted_by="cupti", steps=launches),
        Measurement(quantity=Quantity.GPU_US, samples=samples),
    )


def _may_be_empty(window: Window, index: int) -> bool:
    """Only applying nothing launches nothing; else a profiler that records nothing is at fault."""
    staged = any(any(map(len, append.block_ids)) for append in window.steps[index].appends)
    return window.operation is Operation.APPLY and not staged


def _profile_replay(window: Window, arms: Sequence[Arm]) -> dict[str, Replay]:
    """Device activities of each arm and step of one pass."""
    for arm in arms:
        with arm.guarded():
            arm.rewind()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for index, step in enumerate(window.steps):
            for place, arm in enumerate(arms):
                with arm.guarded():
                    _run_in_range(arm, window.operation, step, index * len(arms) + place)
    found = _activities_by_range(profiler, len(window.steps) * len(arms))
    return {arm.name: found[place :: len(arms)] for place, arm in enumerate(arms)}


def _run_in_range(arm: Arm, operation: Operation, step: StepInputs, index: int) -> None:
    arm.stage(step)
    arm.prepare(operation)
    call = arm.bind(operation, step)
    torch.cuda.synchronize()
    with record_function(f"{RANGE}{index}"):
        call()
        torch.cuda.synchronize()


def _activities_by_range(profiler: Any, num_ranges: int) -> list[list[Activity]]:
    """Sorts device activities into the host ranges that caused them, by time.

    The device is idle before and after each range, so every activity lies inside the range that
    caused it, or outside all of them.
    """
    ranges: list[tuple[int, int, int]] = []
    activities: list[Activity] = []
    for event in profiler.profiler.kineto_results.events():
        on_device = event.device_type() == DeviceType.CUDA
        name = event.name()
        if name.startswith(RANGE):
            if not on_device:
                end = event.start_ns() + event.duration_ns()
                ranges.append((event.start_ns(), end, int(name[len(RANGE) :])))
        elif on_device:
            activity = Activity(_kind(name), name, event.start_ns(), event.duration_ns())
            activities.append(activity)
    if len(ranges) != num_ranges:
        raise ProfilerIncompleteError(f"{len(ranges)} of {num_ranges} ranges were recorded")
    ranges.sort()
    starts = [start for start, _, _ in ranges]
    by_range: list[list[Activity]] = [[] for _ in range(num_ranges)]
    for activity in sorted(activities, key=lambda activity: activity.start_ns):
        place = bisect_right(starts, activity.start_ns) - 1
        if place >= 0 and activity.start_ns <= ranges[place][1]:
            by_range[ranges[place][2]].append(activity)
    return by_range


def _kind(name: str) -> str:
    if name.startswith("Memcpy"):
        return "copy"
    return "memset" if name.startswith("Memset") else "kernel"


def _counts(activities: list[Activity]) -> Counter[tuple[str, str]]:
    return Counter((activity.kind, activity.name) for activity in activities)


def _busy_ns(activities: list[Activity]) -> int:
    """Length of the union of the activities' intervals; they are sorted by start."""
    busy = 0
    end = 0
    for activity in activities:
        start = max(activity.start_ns, end)
        stop = activity.start_ns + activity.duration_ns
        busy += max(0, stop - start)
        end = max(end, stop)
    return busy
