"""Counts and times device operations from CUPTI's activity records, in passes of its own."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from bt_bench.arms import Arm, StepInputs
from bt_bench.measuring.device_kernels import FLUSH_KERNEL_NAME, SPIN_KERNEL_NAME
from bt_bench.measuring.paths import use
from bt_bench.measuring.ports import DevicePort
from bt_bench.measuring.probes import eager_series
from bt_bench.measuring.rounds import RoundRecorder, Turn, Turns, Window
from bt_bench.measuring.timing import SampleBook, rewind
from bt_bench.model import (
    Cache,
    LaunchCensus,
    LaunchCount,
    LaunchPath,
    Load,
    Method,
    Operation,
    Plan,
    Quantity,
    RoundKind,
    Series,
)

STEP_RANGE = "bt_bench_step_"  # the call and the synchronisation after it
CALL_RANGE = "bt_bench_call_"  # the call alone

ATTEMPTS = 3
# Starting the profiler takes tens of milliseconds, and its records take memory until it stops.
STEPS_PER_SESSION = 1500
# The host is slower under the profiler, so the queue has to be longer than in a timed round.
QUEUE_US = 1500.0


@dataclass(frozen=True)
class Setting:
    """Under which condition the operation is profiled, and what is taken then."""

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


@dataclass(frozen=True)
class Pass:
    """One profiled round: its turn, and per arm the activities of each step."""

    turn: Turn
    steps: dict[str, list[list[Activity]]]


def settings_of(plan: Plan) -> list[Setting]:
    """The conditions that a plan asks to be profiled; an idle device always is."""
    busy = [Setting(Load.BUSY, l2, _DEVICE_TIMES) for l2 in plan.l2]
    return [IDLE, *(busy if Load.BUSY in plan.loads else ())]


def profile_window(
    window: Window,
    plan: Plan,
    device: DevicePort,
    recorder: RoundRecorder,
    books: dict[str, SampleBook],
) -> dict[str, LaunchCensus | str]:
    """Replays the window under the profiler, all arms side by side, in each condition.

    Adds `gpu_us` (the time in which at least one of a step's operations ran), `span_us` (first
    start to last end), `gap_us` (their difference) and `last_us` (the last operation's time) to the
    books.

    Returns:
        Per arm the census of the device operations of each step, or why its records cannot be
        right; it has no device times then.

    Raises:
        ArmFailedError: when a variant raises.
    """
    censuses: dict[str, LaunchCensus | str] = {}
    for setting in settings_of(plan):
        taken = _profile_setting(window, setting, plan, device)
        if isinstance(taken, str):
            return dict.fromkeys(window.names, taken)
        expected = {name: c for name, c in censuses.items() if not isinstance(c, str)}
        found = {
            name: _census_of(window, name, [p.steps[name] for p in taken], expected.get(name))
            for name in window.names
        }
        for name, census in found.items():
            if isinstance(census, str) or name not in censuses:
                censuses[name] = census
        good = [name for name in window.names if not isinstance(censuses[name], str)]
        for one in taken:
            index = recorder.add(RoundKind.PROFILED, one.turn, 0.0)
            for name in good:
                _book(books[name], index, setting, one.steps[name])
    for name, census in censuses.items():
        if isinstance(census, str):
            books[name].drop(Method.PROFILER)
    return censuses


def _book(book: SampleBook, index: int, setting: Setting, steps: list[list[Activity]]) -> None:
    times = [_times_ns(activities) for activities in steps]
    for series in setting.series:
        row = [of_step[series.quantity] / 1e3 for of_step in times]
        book.add_row(index, series, row)


def _profile_setting(
    window: Window, setting: Setting, plan: Plan, device: DevicePort
) -> list[Pass] | str:
    """The passes of one condition; taken again when the profiler has dropped records."""
    for attempt in range(ATTEMPTS):
        turns = Turns(window, random.Random(plan.seed))
        todo = [turn for _ in range((plan.profile_rounds + 1) // 2) for turn in turns.next_pair()]
        todo = todo[: plan.profile_rounds]
        per_session = max(1, STEPS_PER_SESSION // (len(window.steps) * len(window.names)))
        passes: list[Pass] = []
        problem: str | None = None
        try:
            for first in range(0, len(todo), per_session):
                passes += _session(window, setting, todo[first : first + per_session], device)
            problem = _inconsistent(window, passes)
        except ProfilerIncompleteError as error:
            if attempt == ATTEMPTS - 1:
                return str(error)
            continue
        if problem is None:
            break
    return passes


def _session(
    window: Window, setting: Setting, turns: Sequence[Turn], device: DevicePort
) -> list[Pass]:
    """Several passes in one session of the profiler."""
    num_arms, num_steps = len(window.names), len(window.steps)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    # Without `acc_events` torch warns, on every start, about cycles that there are none of.
    with profile(activities=activities, acc_events=True) as profiler:
        index = 0
        for turn in turns:
            rewind(turn.arms)
            for step in window.steps:
                for arm in turn.arms:
                    with arm.guarded():
                        _run_in_range(arm, window.operation, step, setting, device, index)
                    index += 1
    found = _activities_by_range(profiler, index, setting)
    passes = []
    for number, turn in enumerate(turns):
        first = number * num_steps * num_arms
        steps = {
            arm.name: found[first + place : first + num_steps * num_arms : num_arms]
            for place, arm in enumerate(turn.arms)
        }
        passes.append(Pass(turn, steps))
    return passes


def _run_in_range(
    arm: Arm,
    operation: Operation,
    step: StepInputs,
    setting: Setting,
    device: DevicePort,
    index: int,
) -> None:
    use(arm, LaunchPath.JIT)
    arm.stage(step)
    arm.prepare(operation)
    call = arm.bind(operation, step)
    device.synchronize()
    if setting.l2 is Cache.COLD:
        device.flush_l2()
    if setting.load is Load.BUSY:
        device.occupy(QUEUE_US)
    with record_function(f"{STEP_RANGE}{index}"):
        with record_function(f"{CALL_RANGE}{index}"):
            call()
        device.synchronize()


def _activities_by_range(profiler: Any, num_ranges: int, setting: Setting) -> list[list[Activity]]:
    """Sorts device activities into the host ranges that caused them, by time.

    The device has nothing but the harness's own work to do before each range, and nothing after
    it, so every activity of the step lies inside its range. A busy device must have been busy
    until the call had returned.
    """
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
    ordered = [steps[index] for index in range(num_ranges)]
    if setting.load is Load.BUSY:
        _check_covered(queue_ends, [returns[index] for index in range(num_ranges)], ordered)
    starts = [start for start, _ in ordered]
    by_range: list[list[Activity]] = [[] for _ in range(num_ranges)]
    for activity in sorted(activities, key=lambda activity: activity.start_ns):
        place = bisect_right(starts, activity.start_ns) - 1
        if place >= 0 and activity.start_ns <= ordered[place][1]:
            by_range[place].append(activity)
    return by_range


def _check_covered(
    queue_ends: list[int], returns: list[int], ranges: list[tuple[int, int]]
) -> None:
    if len(queue_ends) != len(ranges):
        raise ProfilerIncompleteError(f"{len(queue_ends)} of {len(ranges)} queues were recorded")
    late = [
        index
        for index, (end, returned) in enumerate(zip(sorted(queue_ends), returns, strict=True))
        if end < returned
    ]
    if late:
        raise ProfilerIncompleteError(
            f"in {len(late)} of {len(ranges)} steps the queue of {QUEUE_US:.0f} us ended before "
            "the call returned"
        )


def _inconsistent(window: Window, passes: Sequence[Pass]) -> str | None:
    """The first arm whose passes do not agree, in words; `None` where all do."""
    for name in window.names:
        census = _census_of(window, name, [one.steps[name] for one in passes], None)
        if isinstance(census, str):
            return census
    return None


def _census_of(
    window: Window,
    name: str,
    replays: Sequence[list[list[Activity]]],
    expected: LaunchCensus | None,
) -> LaunchCensus | str:
    """Launches of each step, if all passes agree on them, and with an earlier condition's."""
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
    found = LaunchCensus(counted_by="cupti", steps=launches)
    if expected is not None and expected != found:
        return f"{name}: on a busy device other launches were recorded than on an idle one"
    return found


def _may_be_empty(window: Window, index: int) -> bool:
    """Only applying nothing launches nothing; else a profiler that records nothing is at fault."""
    staged = any(any(map(len, append.block_ids)) for append in window.steps[index].appends)
    return window.operation is Operation.APPLY and not staged


def _kind(name: str) -> str:
    if name.startswith("Memcpy"):
        return "copy"
    return "memset" if name.startswith("Memset") else "kernel"


def _counts(activities: list[Activity]) -> Counter[tuple[str, str]]:
    return Counter((activity.kind, activity.name) for activity in activities)


def _times_ns(activities: list[Activity]) -> dict[Quantity, int]:
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
