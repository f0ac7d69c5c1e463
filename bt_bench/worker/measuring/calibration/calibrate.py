"""The harness's own cost and the errors of its methods, measured in this process.

All figures are raw samples: their readers take medians, fit lines and judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle

import torch

from bt_bench.analysis import SPIN_US
from bt_bench.base import no_collection
from bt_bench.results import (
    Calibration,
    DeviceLine,
    Figure,
    Injection,
    L2Flush,
    LaunchChain,
    Method,
    Quantity,
)
from bt_bench.worker.measuring.calibration.copies import time_copies
from bt_bench.worker.measuring.calibration.overhead import launch_samplers
from bt_bench.worker.measuring.calibration.timers import (
    Sampler,
    Samples,
    Timers,
    interleave,
    tick_us,
)
from bt_bench.worker.measuring.calibration.work import (
    QUICK,
    THOROUGH,
    DeviceWork,
    Effort,
    cuda_work,
)
from bt_bench.worker.measuring.ports import Call, Clock, DevicePort
from bt_bench.worker.measuring.profiler_session import DeviceActivity
from bt_bench.worker.measuring.regions import NOTHING, host_times

HOST_ROUNDS = 200
CHAINS = (2, 4, 8)
PAUSE_US = 100.0
REPLAYS = 200
INJECTED_DELAY_US = 20.0

PROFILER_ATTEMPTS = 3

_WHAT = {
    "empty_call": "a call that does nothing, timed as a step is",
    "empty_call_first": "the same, for the first time after other work",
    "timer_tick": "smallest step of the host's clock",
    "event_floor": "two events with nothing between, on an idle device",
    "event_floor_busy": "two events with nothing between, on a busy device",
    "event_null_busy": "two events around an empty kernel, on a busy device",
    "synchronize": "synchronizing with an idle device",
    "null_host": "launching one empty kernel, timed as host_us",
    "null_step": "one empty kernel, timed as step_us",
    "null_gpu": "one empty kernel, timed as gpu_us",
    "null_graph_host": "replaying a graph of one empty kernel, timed as host_us",
    "null_graph_step": "a graph of one empty kernel, timed as step_us",
    "spin_host": "launching one kernel that spins for 10 µs, timed as host_us",
    "spin_step": "one kernel that spins for 10 µs, timed as step_us",
    "spin_graph_host": "replaying a graph of one such kernel, timed as host_us",
    "spin_graph_step": "a graph of one such kernel, timed as step_us",
    "replay": "null_graph_host, over and over",
    "replay_profiled": "the same, after something was profiled",
}


def calibrate(
    clock: Clock, port: DevicePort, *, thorough: bool, profiles: bool = True
) -> Calibration:
    """Calibrate on the current CUDA device.

    Args:
        clock: the host's clock.
        port: the device.
        thorough: take some ten seconds instead of one or two.
        profiles: also use the profiler; only one can run at a time.
    """
    effort = THOROUGH if thorough else QUICK
    if not profiles:
        effort = replace(effort, passes=0)
    calibration = calibrate_with(clock, port, cuda_work, effort)
    # The copies' buffers take up to 256 MiB, which nothing else needs. No table should land there.
    torch.cuda.empty_cache()
    return calibration


def calibrate_host(clock: Clock) -> Calibration:
    """Calibrate without a GPU: the empty call and the tick of the clock."""
    started_ns = clock.now_ns()
    with no_collection():
        samples = interleave(_host_samplers(clock), HOST_ROUNDS)
    return Calibration(seconds=_seconds_since(started_ns, clock), figures=_figures(samples, _WHAT))


def calibrate_with(
    clock: Clock, port: DevicePort, make_work: Callable[[DevicePort], DeviceWork], effort: Effort
) -> Calibration:
    """Calibrate on any device: figures and lines in rounds, then the profiled samples."""
    started_ns = clock.now_ns()
    work = make_work(port)
    timers = Timers(clock, port)
    figures = [*_host_samplers(clock), *_device_samplers(timers, work, effort)]
    lines = _line_samplers(timers, work, effort)
    with no_collection():
        interleave([*figures, *lines], 1)  # the first of everything is slower
        samples = interleave(figures, effort.rounds)
        line_samples = interleave(lines, effort.line_rounds)
        samples |= interleave([_replay_sampler("replay", timers, work)], REPLAYS)
    profiled: list[_Profiled] = []
    copies = None
    if effort.passes:
        profiled = _profile(timers, work, effort)
        samples["null_gpu"] = _durations_us(profiled, _NULL, 0)
        copies = time_copies(work.copy, work.profile, work.copied_bytes, effort.copies)
        with no_collection():
            samples |= interleave([_replay_sampler("replay_profiled", timers, work)], REPLAYS)
    what = _WHAT | {route.name: f"launching: {route.what}" for route in work.routes}
    return Calibration(
        seconds=_seconds_since(started_ns, clock),
        figures=_figures(samples, what),
        lines=_device_lines(line_samples, profiled, effort),
        chains=_chains(profiled),
        injection=_injection(line_samples, profiled),
        flush=L2Flush(
            l2_bytes=work.l2_bytes,
            flushed_bytes=work.flushed_bytes,
            read_bytes=work.read_bytes,
            hot=line_samples[_HOT],
            cold=line_samples[_COLD],
        ),
        copies=copies,
    )


# Samplers

_HOT = "hot"
_COLD = "cold"


def _figures(samples: Samples, what: dict[str, str]) -> list[Figure]:
    return [
        Figure(name=name, what=text, samples=samples[name])
        for name, text in what.items()
        if samples.get(name)
    ]


def _host_samplers(clock: Clock) -> list[Sampler]:
    empty = partial(NOTHING)  # as steps are bound
    return [
        # Right after other work, the processor's caches do not hold the region's code and data.
        Sampler(
            ("empty_call_first", "empty_call"),
            lambda: (host_times(clock, empty)[0], host_times(clock, empty)[0]),
        ),
        Sampler(("timer_tick",), lambda: (tick_us(clock),)),
    ]


def _device_samplers(timers: Timers, work: DeviceWork, effort: Effort) -> list[Sampler]:
    null_graph = timers.replay(work.launch_null)
    spin = _spin(work, SPIN_US)
    spin_graph = timers.replay(spin)
    return [
        Sampler(("event_floor",), timers.event_floor),
        Sampler(("event_floor_busy",), partial(timers.behind_work, NOTHING)),
        Sampler(("event_null_busy",), partial(timers.behind_work, work.launch_null)),
        Sampler(("synchronize",), timers.synchronize),
        Sampler(("null_host", "null_step"), partial(timers.host_and_step, work.launch_null)),
        Sampler(("null_graph_host", "null_graph_step"), partial(timers.host_and_step, null_graph)),
        Sampler(("spin_host", "spin_step"), partial(timers.host_and_step, spin)),
        Sampler(("spin_graph_host", "spin_graph_step"), partial(timers.host_and_step, spin_graph)),
        *launch_samplers(work.routes, timers.clock, timers.port.synchronize, effort.launches),
    ]


def _replay_sampler(name: str, timers: Timers, work: DeviceWork) -> Sampler:
    """Build a sampler that replays one graph repeatedly; an attached profiler makes that dearer."""
    replay = timers.replay(work.launch_null)
    return Sampler((name,), lambda: timers.host_and_step(replay)[:1])


def _line_samplers(timers: Timers, work: DeviceWork, effort: Effort) -> list[Sampler]:
    samplers = []
    for length_us in effort.spin_us:
        spin = _spin(work, length_us)
        samplers.append(Sampler(((Method.GRAPH_SLOPE, length_us),), timers.graph_slope(spin)))
        samplers.append(Sampler(((Method.EVENTS, length_us),), partial(timers.behind_work, spin)))
    samplers.append(_delay_sampler(timers, work))
    hot = partial(timers.behind_work, work.read, work.read)
    cold = partial(timers.behind_work, work.read, timers.port.flush_l2)
    return [*samplers, Sampler((_HOT,), hot), Sampler((_COLD,), cold)]


def _delay_sampler(timers: Timers, work: DeviceWork) -> Sampler:
    """Build a sampler of a launch without and with a delay before it, in alternating order."""
    calls = {
        delay_us: timers.delayed(_spin(work, SPIN_US), PAUSE_US + delay_us)
        for delay_us in (0.0, INJECTED_DELAY_US)
    }
    quantities = (Quantity.HOST_US, Quantity.STEP_US)
    orders = cycle((tuple(calls), tuple(calls)[::-1]))

    def sample() -> tuple[float, ...]:
        # Not timed: the first launch after other work took 11 µs longer on the host of an H100,
        # because its caches were cold. That would be mistaken for part of the delay.
        timers.host_and_step(calls[0.0])
        taken = {delay_us: timers.host_and_step(calls[delay_us]) for delay_us in next(orders)}
        return tuple(time_us for delay_us in calls for time_us in taken[delay_us])

    return Sampler(tuple((each, delay_us) for delay_us in calls for each in quantities), sample)


def _spin(work: DeviceWork, length_us: float) -> Call:
    return partial(work.launch_spin, round(length_us * 1e3))


def _seconds_since(started_ns: int, clock: Clock) -> float:
    return round((clock.now_ns() - started_ns) / 1e9, 3)


# Under the profiler

_SPIN = "spin"
_CHAIN = "chain"
_INJECTED = "injected"
_NULL = "null"


@dataclass(frozen=True)
class _Profiled:
    """A profiled call: its kind, its length, chain length or delay, and its activities."""

    kind: str
    value: float
    activities: list[DeviceActivity]

    @property
    def is_complete(self) -> bool:
        """Return whether there are as many activities as were launched."""
        return len(self.activities) == (self.value if self.kind == _CHAIN else 1)


def _profile(timers: Timers, work: DeviceWork, effort: Effort) -> list[_Profiled]:
    """Profile all that needs it in one session, again where records are missing."""
    todo: list[tuple[str, float, Call]] = [
        (_CHAIN, length, partial(_repeat, work.launch_null, length)) for length in CHAINS
    ]
    for _ in range(effort.passes):
        todo += [(_SPIN, length_us, _spin(work, length_us)) for length_us in effort.spin_us]
        for delay_us in (0.0, INJECTED_DELAY_US):
            call = timers.delayed(_spin(work, SPIN_US), PAUSE_US + delay_us)
            todo.append((_INJECTED, delay_us, call))
        todo.append((_NULL, 0, work.launch_null))
    for _ in range(PROFILER_ATTEMPTS):
        found = work.profile([call for _, _, call in todo])
        profiled = [
            _Profiled(kind, value, activities)
            for (kind, value, _), activities in zip(todo, found, strict=True)
        ]
        if all(one.is_complete for one in profiled):
            break
    return profiled


def _repeat(call: Call, count: int) -> None:
    for _ in range(count):
        call()


def _durations_us(profiled: Sequence[_Profiled], kind: str, value: float) -> list[float]:
    """Return durations of profiled calls of a single operation, where the record is complete."""
    return [
        one.activities[0].duration_ns / 1e3
        for one in profiled
        if (one.kind, one.value) == (kind, value) and one.is_complete
    ]


def _device_lines(
    samples: Samples, profiled: Sequence[_Profiled], effort: Effort
) -> list[DeviceLine]:
    """Return a line per method, without the lengths for which the method has no samples."""
    lines = []
    for method in (Method.PROFILER, Method.GRAPH_SLOPE, Method.EVENTS):
        reported = {
            length_us: _durations_us(profiled, _SPIN, length_us)
            if method is Method.PROFILER
            else samples[method, length_us]
            for length_us in effort.spin_us
        }
        taken = {length_us: values for length_us, values in reported.items() if values}
        if taken:
            line = DeviceLine(method=method, set_us=[*taken], reported_us=[*taken.values()])
            lines.append(line)
    return lines


def _chains(profiled: Sequence[_Profiled]) -> list[LaunchChain]:
    return [
        LaunchChain(launched=int(one.value), counted=len(one.activities))
        for one in profiled
        if one.kind == _CHAIN
    ]


def _injection(samples: Samples, profiled: Sequence[_Profiled]) -> Injection:
    def quantities(delay_us: float) -> dict[Quantity, list[float]]:
        return {
            Quantity.HOST_US: samples[Quantity.HOST_US, delay_us],
            Quantity.STEP_US: samples[Quantity.STEP_US, delay_us],
            Quantity.GPU_US: _durations_us(profiled, _INJECTED, delay_us),
        }

    return Injection(
        pause_us=PAUSE_US,
        delay_us=INJECTED_DELAY_US,
        without=quantities(0.0),
        with_delay=quantities(INJECTED_DELAY_US),
    )
