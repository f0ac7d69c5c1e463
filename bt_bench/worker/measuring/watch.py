"""The watch around rounds: clocks, throttling of the GPU and by a CPU quota, and compilations.

Sensors are only read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch

from bt_bench.analysis import percentile
from bt_bench.base.limits import Throttling, control_groups
from bt_bench.results import DiscardCode
from bt_bench.worker.machine.nvml import GpuSensors, open_nvml
from bt_bench.worker.measuring.compile_ledger import CompileLedger
from bt_bench.worker.measuring.host_time import no_turn
from bt_bench.worker.measuring.ports import Clock
from bt_bench.worker.tasks.outcome import OnRound

# Reasons that force the device to slow down. The others, an idle device, clocks set by a user and
# display clocks, do not come and go within a run.
HARMFUL_REASONS = frozenset(
    {"sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"}
)
LOWEST_CLOCK_SHARE = 0.95
REACHED_PERCENTILE = 90
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class SensorReading:
    """The readings of a device's sensors at one moment; `None` is unknown.

    Args:
        sm_clock_mhz: clock of the multiprocessors.
        memory_clock_mhz: clock of the memory.
        throttle_reasons: names from `bt_bench.worker.machine.nvml.THROTTLE_REASONS`.
        temperature_c: temperature of the chip.
    """

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    temperature_c: int | None = None


class Telemetry(Protocol):
    """The sensors of the measured device."""

    def read(self) -> SensorReading:
        """Read the sensors now."""

    def processes(self) -> int | None:
        """Return the number of processes with a context on the device; `None` if unknown."""

    def strangers(self) -> bool:
        """Return whether a process has a context now that had none when this was first asked."""


class NoTelemetry:
    """No sensors: nothing is known."""

    def read(self) -> SensorReading:
        """Return a reading without values."""
        return SensorReading()

    def processes(self) -> int | None:
        """Return `None`: unknown."""
        return None

    def strangers(self) -> bool:
        """Return false: nothing is known."""
        return False


class Strangers:
    """Processes that come to a device while this one measures there.

    Those that were there before are no strangers: one is this process, which a container may know
    by another id. A process is seen when it makes its context, some tenths of a second before its
    first kernel, so a look from time to time is enough.

    Args:
        read: returns the ids of the processes that have a context; `None`: unknown.
        now: seconds since some fixed moment.
    """

    def __init__(
        self,
        read: Callable[[], frozenset[int] | None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._now = read, now
        self._first: frozenset[int] | None = None
        self._looked = float("-inf")
        self._there = False

    def there(self) -> bool:
        """Return whether there is one, as of the last `LOOK_SECONDS`."""
        now = self._now()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            found = self._read() or frozenset()
            self._first = found if self._first is None else self._first
            self._there = bool(found - self._first)
        return self._there


class NvmlTelemetry:
    """NVML's sensors of the current CUDA device, open for as long as the process lives."""

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._sensors = GpuSensors(open_nvml(), properties.uuid)
        self.strangers = Strangers(self._sensors.processes).there

    def processes(self) -> int | None:
        """Return the number of processes with a context on the GPU."""
        found = self._sensors.processes()
        return None if found is None else len(found)

    def read(self) -> SensorReading:
        """Read the sensors now, which takes some tens of microseconds."""
        sensors = self._sensors
        reasons = sensors.throttle_reasons()
        return SensorReading(
            sm_clock_mhz=sensors.sm_clock_mhz(),
            memory_clock_mhz=sensors.memory_clock_mhz(),
            throttle_reasons=None if reasons is None else tuple(reasons),
            temperature_c=sensors.temperature_c(),
        )


def is_throttled(before: SensorReading, after: SensorReading) -> bool:
    """Return whether a harmful reason held the clocks down before or after a round."""
    return any(
        HARMFUL_REASONS.intersection(reading.throttle_reasons or ()) for reading in (before, after)
    )


def slow_rounds(clocks: Sequence[int | None]) -> set[int]:
    """Return the rounds whose SM clock was over 5 % below the clock reached in the case.

    The clock reached is the 90th percentile of the rounds' clocks. Their median would mix the two
    halves of a case that was slowed down half-way.

    Args:
        clocks: per round in MHz; `None` is unknown, and never slow.
    """
    known = [clock for clock in clocks if clock is not None]
    if not known:
        return set()
    lowest = LOWEST_CLOCK_SHARE * percentile(known, REACHED_PERCENTILE)
    return {index for index, clock in enumerate(clocks) if clock is not None and clock < lowest}


def read_throttling() -> Throttling:
    """Return how often the CPU quota of this process's control groups has stopped it so far."""
    return control_groups().throttling()


@dataclass(frozen=True)
class Surroundings:
    """The clock, sensors, ledger and quota to watch around rounds.

    Args:
        clock: the host's clock.
        telemetry: the device's sensors.
        ledger: counts compilations.
        throttling: reads how often a CPU quota has stopped the process.
        host_turn: waits for a turn at timing the host.
    """

    clock: Clock
    telemetry: Telemetry
    ledger: CompileLedger
    throttling: Callable[[], Throttling] = read_throttling
    host_turn: Callable[[OnRound], AbstractContextManager[None]] = no_turn


@dataclass(frozen=True)
class Seen:
    """The lower of the SM clocks around a round, and why the round does not count, if so."""

    sm_clock_mhz: int | None
    discarded: DiscardCode | None


class Watch:
    """A reader of sensors and ledger between rounds; one round's end is the next one's beginning.

    Args:
        around: the clock, sensors, ledger and quota to watch.
        alone: whether no other process of this run uses the device, so that any is a stranger.
    """

    def __init__(self, around: Surroundings, *, alone: bool = False) -> None:
        self._around = around
        self._alone = alone
        self._shared = False
        self._loads = 0
        self._last = SensorReading()
        self._quota = Throttling()
        self.begin()

    def begin(self) -> None:
        """Forget everything before this moment."""
        self._loads = self._around.ledger.loads
        self._last = self._around.telemetry.read()
        self._quota = self._around.throttling()
        self._shared = self._alone and self._around.telemetry.strangers()

    def end_round(self) -> Seen:
        """Return the observations since the last round or `begin`."""
        before, loads, quota, shared = self._last, self._loads, self._quota, self._shared
        self.begin()
        known = [before.sm_clock_mhz, self._last.sm_clock_mhz]
        clock = min((clock for clock in known if clock is not None), default=None)
        if self._loads != loads:
            return Seen(clock, DiscardCode.COMPILED)
        if shared or self._shared:
            return Seen(clock, DiscardCode.SHARED)
        if is_throttled(before, self._last):
            return Seen(clock, DiscardCode.THROTTLED)
        return Seen(clock, DiscardCode.QUOTA if self._quota.since(quota) else None)
