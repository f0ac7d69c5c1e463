"""Timers for calibration, built on the regions that time steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bt_bench.worker.measuring.ports import Call, Clock, DevicePort
from bt_bench.worker.measuring.regions import (
    LONGEST_QUEUE_US,
    NOTHING,
    GraphSlope,
    between_events,
    between_events_and_readings,
    captured,
    host_times,
    outlasted,
    queue_ahead,
)

TICK_READINGS = 64
BLOCKER_US = 100.0
BLOCKED_ATTEMPTS = 20

# A figure's name, or another identifier of a sampler's samples.
Key = Hashable
Samples = dict[Key, list[float]]


@dataclass(frozen=True)
class Sampler:
    """A function that takes one sample per key, in µs, or returns `None` if it cannot."""

    keys: tuple[Key, ...]
    sample: Callable[[], tuple[float, ...] | None]


def interleave(samplers: Sequence[Sampler], rounds: int) -> Samples:
    """Take samples of all samplers in rounds, in µs to 0.1 ns; drift then hits all of them."""
    samples: Samples = {key: [] for sampler in samplers for key in sampler.keys}
    for _ in range(rounds):
        for sampler in samplers:
            taken = sampler.sample()
            if taken is not None:
                for key, value in zip(sampler.keys, taken, strict=True):
                    samples[key].append(round(value, 4))
    return samples


def tick_us(clock: Clock) -> float:
    """Return the smallest positive difference of consecutive readings, in µs."""
    now_ns = clock.now_ns
    while True:
        readings = [now_ns() for _ in range(TICK_READINGS)]
        steps = [after - before for before, after in pairwise(readings) if after > before]
        if steps:
            return min(steps) / 1e3


class Timers:
    """The ways to time work on a device; each returns its samples in µs."""

    def __init__(self, clock: Clock, port: DevicePort) -> None:
        self.port = port
        self.clock = clock
        self._blocker_us = BLOCKER_US

    def synchronize(self) -> tuple[float]:
        """Return the host time of synchronizing with an idle device."""
        self.port.synchronize()
        return host_times(self.clock, self.port.synchronize)[:1]

    def host_and_step(self, call: Call) -> tuple[float, float]:
        """Return the host time on an idle device until the call returns, and until it has run."""
        self.port.synchronize()
        return host_times(self.clock, call, self.port.synchronize)

    def event_floor(self) -> tuple[float]:
        """Return the time between two adjacent events on an idle device."""
        self.port.synchronize()
        between_events(self.port, NOTHING)
        self.port.synchronize()
        return (self.port.elapsed_us(),)

    def behind_work(self, call: Call, before: Call = NOTHING) -> tuple[float] | None:
        """Return the time between events around a call, behind device work that outlasts the call.

        Args:
            call: the call to time.
            before: enqueues work ahead of that device work.

        Returns:
            `None` where the host was never fast enough.
        """
        port = self.port
        for _ in range(BLOCKED_ATTEMPTS):
            queue_ahead(port, self._blocker_us, before)
            between_events_and_readings(self.clock, port, call)
            if outlasted(port):
                return (port.elapsed_us(),)
            self._blocker_us = min(2 * self._blocker_us, LONGEST_QUEUE_US)
        return None

    def replay(self, call: Call) -> Call:
        """Return the replay of a graph of one call."""
        return captured(self.port, call, 1).replay

    def graph_slope(self, call: Call) -> Callable[[], tuple[float]]:
        """Return a function that measures the time one more captured call adds to a replay."""
        slope = GraphSlope(self.port, call)
        return lambda: (slope.sample_us(replays=1),)

    def delayed(self, call: Call, delay_us: float) -> Call:
        """Return the call with a delay before it that keeps the host busy."""
        now_ns, delay_ns = self.clock.now_ns, round(delay_us * 1e3)

        def delay_and_call() -> None:
            end_ns = now_ns() + delay_ns
            while now_ns() < end_ns:
                pass
            call()

        return delay_and_call
