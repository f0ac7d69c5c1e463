"""Counts and times device operations from CUPTI's activity records, in a pass of its own."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from bt_bench.arms import Arm, StepInputs
from bt_bench.model import LaunchCensus, LaunchCount, Measurement, Operation, Quantity

RANGE = "bt_bench_step_"


class ProfilerIncompleteError(Exception):
    """The profiler's records cannot be right; it drops some now and then without saying so."""


@dataclass(frozen=True)
class Activity:
    """One device operation, with times of the host clock in ns."""

    kind: str
    name: str
    start_ns: int
    duration_ns: int


def profile_arm(
    arm: Arm, steps: Sequence[StepInputs], operation: Operation, rounds: int
) -> tuple[LaunchCensus, Measurement]:
    """Replays the window `rounds` times under the profiler.

    Returns:
        The census of the device operations of each step, and `gpu_us`: the time in which at
        least one of the step's operations ran, per round and step.

    Raises:
        ProfilerIncompleteError: when rounds disagree about what a step launched.
    """
    replays = [_profile_replay(arm, steps, operation) for _ in range(rounds)]
    census = [_counts(step) for step in replays[0]]
    for replay in replays[1:]:
        for index, step in enumerate(replay):
            if _counts(step) != census[index]:
                raise ProfilerIncompleteError(
                    f"step {index} of {arm.name}: one pass recorded {dict(census[index])}, "
                    f"another {dict(_counts(step))}"
                )
    samples = [[_busy_ns(step) / 1e3 for step in replay] for replay in replays]
    launches = [
        [
            LaunchCount.model_validate({"kind": kind, "name": name, "count": count})
            for (kind, name), count in sorted(step.items())
        ]
        for step in census
    ]
    return (
        LaunchCensus(counted_by="cupti", steps=launches),
        Measurement(quantity=Quantity.GPU_US, samples=samples),
    )


def _profile_replay(
    arm: Arm, steps: Sequence[StepInputs], operation: Operation
) -> list[list[Activity]]:
    arm.rewind()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for index, step in enumerate(steps):
            arm.stage(step)
            arm.prepare(operation)
            call = arm.bind(operation, step)
            torch.cuda.synchronize()
            with record_function(f"{RANGE}{index}"):
                call()
                torch.cuda.synchronize()
            if operation is Operation.STAGE:
                arm.tables.apply_staged_writes()
    return _activities_by_step(profiler, len(steps))


def _activities_by_step(profiler: Any, num_steps: int) -> list[list[Activity]]:
    """Sorts device activities into the host ranges of the steps, by time.

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
    if len(ranges) != num_steps:
        raise ProfilerIncompleteError(f"{len(ranges)} of {num_steps} steps were recorded")
    ranges.sort()
    starts = [start for start, _, _ in ranges]
    by_step: list[list[Activity]] = [[] for _ in range(num_steps)]
    for activity in sorted(activities, key=lambda activity: activity.start_ns):
        place = bisect_right(starts, activity.start_ns) - 1
        if place >= 0 and activity.start_ns <= ranges[place][1]:
            by_step[ranges[place][2]].append(activity)
    return by_step


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
