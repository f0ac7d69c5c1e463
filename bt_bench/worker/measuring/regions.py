"""The timed regions: what lies between two readings of the clock, or between two events.

Each is written once, and both the measurements and calibration time with it. So what a calibration
says that the harness adds is added by the code that measures, and not by a copy of it.

A region looks up whatever it needs before its first reading, and makes the timed call from its own
frame: one below the function that uses the region, for measuring and calibration alike. How many
frames are above that function differs, but a worker has room for all of them
(`worker/call_stack.py`). The probes push and pop NVTX ranges around regions, not within.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

from bt_bench.analysis import median
from bt_bench.worker.measuring.ports import Clock, DevicePort, Replayable

# A builtin, so that no frame of Python's own is in it: that of a step's call is the step's.
NOTHING = gc.isenabled

LONGEST_QUEUE_US = 20_000.0

# The slope is taken between graphs of N and 2 N calls.
SLOPE_CALLS = 8
SLOPE_QUEUE_US = 100.0
SLOPE_QUEUES = 5  # tried in turn, each twice as long; a host that stalls for 1.6 ms shows


# Host clock


def host_times(
    clock: Clock, call: Callable[[], object], wait: Callable[[], object] = NOTHING
) -> tuple[float, float]:
    """Host time in µs until a call returns, and from the same start until `wait` returns."""
    now_ns = clock.now_ns
    # CPython specialises a place that calls for the types that it sees, and others then take
    # longer. Steps are bound as partials; everything else becomes one.
    timed = call if type(call) is partial else partial(call)
    start = now_ns()
    timed()
    returned = now_ns()
    wait()
    end = now_ns()
    return (returned - start) / 1e3, (end - start) / 1e3


def host_time_in_a_row(
    clock: Clock, call: Callable[[], object], count: int, wait: Callable[[], object] = NOTHING
) -> float:
    """Host time in µs per call, of `count` calls in a row and of one `wait` after them."""
    now_ns = clock.now_ns
    start = now_ns()
    for _ in range(count):
        call()
    wait()
    end = now_ns()
    return (end - start) / 1e3 / count


def host_time_restaging(
    clock: Clock,
    call: Callable[[], object],
    count: int,
    wait: Callable[[], object],
    stage: Callable[[], object],
    undo: Callable[[], object],
) -> float:
    """As `host_time_in_a_row`, where each call consumes what `stage` stages.

    Staging the same step again needs what the host knew before, so `undo` puts that back each time.
    """
    now_ns = clock.now_ns
    start = now_ns()
    for _ in range(count):
        undo()
        stage()
        call()
    wait()
    end = now_ns()
    return (end - start) / 1e3 / count


# Events


def between_events(device: DevicePort, call: Callable[[], object]) -> None:
    """Enqueues the two events around a call; `elapsed_us` of the idle device then has its time."""
    record_start, record_end = device.record_start, device.record_end
    record_start()
    call()
    record_end()


def between_events_and_readings(
    clock: Clock, device: DevicePort, call: Callable[[], object]
) -> float:
    """As `between_events`, and returns the host time of the call in µs.

    The readings lie between the events, so this is for a device with a queue ahead.
    """
    now_ns, record_start, record_end = clock.now_ns, device.record_start, device.record_end
    record_start()
    start = now_ns()
    call()
    returned = now_ns()
    record_end()
    return (returned - start) / 1e3


def queue_ahead(device: DevicePort, queue_us: float, first: Callable[[], object] = NOTHING) -> None:
    """Keeps an idle device busy, so that the events of the next region pass only afterwards.

    Args:
        device: what is kept busy; it is waited for.
        queue_us: for how long.
        first: what is enqueued ahead of that.
    """
    device.synchronize()
    first()
    device.occupy(queue_us)


def outlasted(device: DevicePort) -> bool:
    """Whether the queue outlasted the region behind it; waits for the device.

    If so, nothing of the host is between the two events.
    """
    covered = not device.start_has_passed()
    device.synchronize()
    return covered


# Captured graphs


def captured(device: DevicePort, call: Callable[[], object], count: int) -> Replayable:
    """A graph of so many calls, ready to be replayed; it has been replayed once, and has run."""
    device.synchronize()
    graph = device.capture(call, count)
    graph.replay()  # the first replay also uploads the graph
    device.synchronize()
    return graph


class GraphSlope:
    """Device time of a call by what one more captured call adds to a replay.

    Args:
        device: what captures and replays.
        call: what is captured.
    """

    def __init__(self, device: DevicePort, call: Callable[[], object]) -> None:
        self._device = device
        self._calls = SLOPE_CALLS
        self._short = captured(device, call, self._calls)
        self._long = captured(device, call, 2 * self._calls)

    def sample_us(self, replays: int) -> float:
        """The slope in µs between the medians of so many replays of each graph."""
        short_us, long_us = (
            median([self._replay_us(graph) for _ in range(replays)])
            for graph in (self._short, self._long)
        )
        return max(0.0, (long_us - short_us) / self._calls)

    def _replay_us(self, graph: Replayable) -> float:
        """Device time of one replay, by events behind a queue that hides the launch."""
        for doublings in range(SLOPE_QUEUES):
            queue_ahead(self._device, SLOPE_QUEUE_US * 2**doublings)
            between_events(self._device, graph.replay)
            if outlasted(self._device):
                break
        return self._device.elapsed_us()
