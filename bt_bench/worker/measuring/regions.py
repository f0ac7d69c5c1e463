"""Timed regions: the code between two readings of the clock, or between two events.

Measurements and calibration share these functions, so the overhead that a calibration reports is
added by the code that measures, and not by a copy of it.

A region looks up everything it needs before its first reading, and makes the timed call from its
own frame. That frame is one below the function that uses the region, for measurements and
calibration alike. The number of frames above that function differs, but a worker has room for all
of them (`worker/isolation/call_stack.py`). The probes push and pop NVTX ranges around regions, not
within.
"""

from __future__ import annotations

import gc
from functools import partial

from bt_bench.analysis import median
from bt_bench.worker.measuring.ports import Call, Clock, DevicePort, Replayable

# A builtin, which adds no Python frame: in a step's call, the only frame is the step's own.
NOTHING = gc.isenabled

LONGEST_QUEUE_US = 20_000.0

# The slope is taken between graphs of N and 2 N calls.
SLOPE_CALLS = 8
SLOPE_QUEUE_US = 100.0
SLOPE_QUEUES = 5  # tried in turn, each twice as long; a stall of the host of 1.6 ms shows


# Host clock


def host_times(clock: Clock, call: Call, wait: Call = NOTHING) -> tuple[float, float]:
    """Return the host time in µs until a call returns, and until `wait` after it returns."""
    now_ns = clock.now_ns
    # CPython specialises a call site for the types that it sees, and other types then take longer.
    # Steps are bound as partials; everything else becomes one.
    timed = call if type(call) is partial else partial(call)
    start = now_ns()
    timed()
    returned = now_ns()
    wait()
    end = now_ns()
    return (returned - start) / 1e3, (end - start) / 1e3


def host_time_in_a_row(clock: Clock, call: Call, count: int, wait: Call = NOTHING) -> float:
    """Return the host time in µs per call, for `count` calls in a row and one `wait` after them."""
    now_ns = clock.now_ns
    start = now_ns()
    for _ in range(count):
        call()
    wait()
    end = now_ns()
    return (end - start) / 1e3 / count


def host_time_restaging(
    clock: Clock, call: Call, count: int, wait: Call, stage: Call, undo: Call
) -> float:
    """Return the same as `host_time_in_a_row` for calls that consume what `stage` stages.

    Staging a step again requires the host's earlier state, which `undo` restores each time.
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


def between_events(device: DevicePort, call: Call) -> None:
    """Enqueue the two events around a call; on the idle device, `elapsed_us` returns its time."""
    record_start, record_end = device.record_start, device.record_end
    record_start()
    call()
    record_end()


def between_events_and_readings(clock: Clock, device: DevicePort, call: Call) -> float:
    """Enqueue as `between_events`, and return the host time of the call in µs.

    The readings lie between the events, so the device needs a queue ahead.
    """
    now_ns, record_start, record_end = clock.now_ns, device.record_start, device.record_end
    record_start()
    start = now_ns()
    call()
    returned = now_ns()
    record_end()
    return (returned - start) / 1e3


def queue_ahead(device: DevicePort, queue_us: float, first: Call = NOTHING) -> None:
    """Keep an idle device busy: the events of the next region then pass only afterwards.

    Args:
        device: the device; it is synchronised first.
        queue_us: length of the queue.
        first: enqueues work ahead of the queue.
    """
    device.synchronize()
    first()
    device.occupy(queue_us)


def outlasted(device: DevicePort) -> bool:
    """Return whether the queue outlasted the region behind it; wait for the device.

    If so, no host time lies between the two events.
    """
    covered = not device.start_has_passed()
    device.synchronize()
    return covered


# Captured graphs


def captured(device: DevicePort, call: Call, count: int) -> Replayable:
    """Return a graph of `count` calls that has been replayed once and has run."""
    device.synchronize()
    graph = device.capture(call, count)
    graph.replay()  # the first replay also uploads the graph
    device.synchronize()
    return graph


class GraphSlope:
    """Device time of a call: the time that one more captured call adds to a replay.

    Args:
        device: captures and replays.
        call: the call to capture.
    """

    def __init__(self, device: DevicePort, call: Call) -> None:
        self._device = device
        self._calls = SLOPE_CALLS
        self._short = captured(device, call, self._calls)
        self._long = captured(device, call, 2 * self._calls)

    def sample_us(self, replays: int) -> float:
        """Return the slope in µs between the medians of `replays` replays of each graph."""
        short_us, long_us = (
            median([self._replay_us(graph) for _ in range(replays)])
            for graph in (self._short, self._long)
        )
        return max(0.0, (long_us - short_us) / self._calls)

    def _replay_us(self, graph: Replayable) -> float:
        """Return the device time of one replay, by events behind a queue that hides the launch."""
        for doublings in range(SLOPE_QUEUES):
            queue_ahead(self._device, SLOPE_QUEUE_US * 2**doublings)
            between_events(self._device, graph.replay)
            if outlasted(self._device):
                break
        return self._device.elapsed_us()
