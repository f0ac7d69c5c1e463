"""The ways in which calibration takes times, the same as those in which steps are timed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from bt_bench.worker.measuring.calibration.overhead import time_launches
from bt_bench.worker.measuring.methods.graphs import CALLS
from bt_bench.worker.measuring.ports import Clock, DevicePort

TICK_READINGS = 64
BLOCKER_US = 100.0
LONGEST_BLOCKER_US = 20_000.0
BLOCKED_ATTEMPTS = 20


def time_call(clock: Clock, call: Callable[[], object]) -> tuple[float]:
    """The timed region of a step: what an empty call takes here is what the harness adds."""
    now_ns = clock.now_ns
    start = now_ns()
    call()
    end = now_ns()
    return ((end - start) / 1e3,)


def tick_us(clock: Clock) -> float:
    """Smallest positive difference of consecutive readings."""
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
        self._clock = clock
        self._blocker_us = BLOCKER_US

    def synchronize(self) -> tuple[float]:
        """Host time of synchronizing with an idle device."""
        self.port.synchronize()
        return time_call(self._clock, self.port.synchronize)

    def launches(self, launch: Callable[[], object], count: int) -> tuple[float]:
        """Host time per launch."""
        self.port.synchronize()
        return (time_launches(self._clock, launch, count),)

    def host_and_step(self, call: Callable[[], object]) -> tuple[float, float]:
        """Host clock on an idle device, until the call returns and until it has run."""
        now_ns, synchronize = self._clock.now_ns, self.port.synchronize
        synchronize()
        start = now_ns()
        call()
        returned = now_ns()
        synchronize()
        end = now_ns()
        return ((returned - start) / 1e3, (end - start) / 1e3)

    def event_floor(self) -> tuple[float]:
        """Two events with nothing between, on an idle device."""
        self.port.synchronize()
        self.port.record_start()
        self.port.record_end()
        self.port.synchronize()
        return (self.port.elapsed_us(),)

    def behind_work(
        self, call: Callable[[], object], before: Callable[[], object] | None = None
    ) -> tuple[float] | None:
        """Events around a call, behind device work that outlasts its enqueuing.

        Args:
            call: what is timed.
            before: what is enqueued ahead of that device work.

        Returns:
            `None` where the host was never fast enough.
        """
        port = self.port
        for _ in range(BLOCKED_ATTEMPTS):
            port.synchronize()
            if before is not None:
                before()
            port.occupy(self._blocker_us)
            port.record_start()
            call()
            port.record_end()
            covered = not port.start_has_passed()
            port.synchronize()
            if covered:
                return (port.elapsed_us(),)
            self._blocker_us = min(2 * self._blocker_us, LONGEST_BLOCKER_US)
        return None

    def captured(self, call: Callable[[], object], count: int) -> Callable[[], object]:
        """The replay of a graph of so many calls."""
        self.port.synchronize()
        graph = self.port.capture(call, count)
        graph.replay()  # the first replay also uploads the graph
        self.port.synchronize()
        return graph.replay

    def graph_slope(self, call: Callable[[], object]) -> Callable[[], tuple[float] | None]:
        """Returns a function that measures what one more captured call adds to a replay."""
        replay_short = self.captured(call, CALLS)
        replay_long = self.captured(call, 2 * CALLS)

        def sample() -> tuple[float] | None:
            short, long = self.behind_work(replay_short), self.behind_work(replay_long)
            if short is None or long is None:
                return None
            return (max(0.0, (long[0] - short[0]) / CALLS),)

        return sample

    def delayed(self, call: Callable[[], object], delay_us: float) -> Callable[[], object]:
        """The call after a delay that keeps the host busy."""
        now_ns, delay_ns = self._clock.now_ns, round(delay_us * 1e3)

        def delay_and_call() -> None:
            end_ns = now_ns() + delay_ns
            while now_ns() < end_ns:
                pass
            call()

        return delay_and_call
