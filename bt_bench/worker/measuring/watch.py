"""What is watched while rounds are taken: clocks, throttling, and compilations.

Sensors are only read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from bt_bench.analysis import percentile
from bt_bench.results import DiscardCode
from bt_bench.worker.machine.nvml import GpuSensors, open_nvml
from bt_bench.worker.measuring.ports import Clock

# Reasons that slow the device down against its own will. An idle device, clocks that somebody
# has set, and those of the display do not come and go within a run.
HARMFUL_REASONS = frozenset(
    {"sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"}
)
LOWEST_CLOCK_SHARE = 0.95
REACHED_PERCENTILE = 90


@dataclass(frozen=True)
class Reading:
    """What the sensors of a device say at one moment; `None` is unknown.

    Args:
        sm_clock_mhz: clock of the multiprocessors.
        memory_clock_mhz: clock of the memory.
        throttle_reasons: names of `bt_bench.worker.machine.nvml.THROTTLE_REASONS`.
        temperature_c: temperature of the chip.
    """

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    temperature_c: int | None = None


class Telemetry(Protocol):
    """The sensors of the device that is measured."""

    def read(self) -> Reading:
        """What they say now."""
        ...

    def processes(self) -> int | None:
        """How many processes have a context on the device; `None` if that is not known."""
        ...


class NoTelemetry:
    """No sensors: nothing is known."""

    def read(self) -> Reading:
        """A reading without values."""
        return Reading()

    def processes(self) -> int | None:
        """Always `None`."""
        return None


class NvmlTelemetry:
    """NVML's sensors of the current CUDA device, which stay open as long as the process lives."""

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._sensors = GpuSensors(open_nvml(), properties.uuid)

    def processes(self) -> int | None:
        """How many processes have a context on the GPU."""
        return self._sensors.processes()

    def read(self) -> Reading:
        """What they say now; takes some tens of microseconds."""
        sensors = self._sensors
        reasons = sensors.throttle_reasons()
        return Reading(
            sm_clock_mhz=sensors.sm_clock_mhz(),
            memory_clock_mhz=sensors.memory_clock_mhz(),
            throttle_reasons=None if reasons is None else tuple(reasons),
            temperature_c=sensors.temperature_c(),
        )


def is_throttled(before: Reading, after: Reading) -> bool:
    """Whether something held the clocks down before or after a round."""
    return any(
        HARMFUL_REASONS.intersection(reading.throttle_reasons or ()) for reading in (before, after)
    )


def slow_rounds(clocks: Sequence[int | None]) -> set[int]:
    """Rounds whose SM clock was more than 5 % below what the device reached in the case.

    What it reached is the 90th percentile of the rounds' clocks, not their median, so that the two
    halves of a case that was slowed down half-way are not mixed.

    Args:
        clocks: per round in MHz; `None` is unknown, and never slow.
    """
    known = [clock for clock in clocks if clock is not None]
    if not known:
        return set()
    lowest = LOWEST_CLOCK_SHARE * percentile(known, REACHED_PERCENTILE)
    return {index for index, clock in enumerate(clocks) if clock is not None and clock < lowest}


class Loads(Protocol):
    """Counts the binaries that were compiled or loaded so far."""

    @property
    def loads(self) -> int:
        """The count."""
        ...


@dataclass(frozen=True)
class Surroundings:
    """What is watched around rounds.

    Args:
        clock: the host's clock.
        telemetry: the device's sensors.
        ledger: counts compilations.
    """

    clock: Clock
    telemetry: Telemetry
    ledger: Loads


@dataclass(frozen=True)
class Seen:
    """The lower of the SM clocks around a round, and why the round does not count, if so."""

    sm_clock_mhz: int | None
    discarded: DiscardCode | None


class Watch:
    """Reads sensors and ledger between rounds; the end of one round is the beginning of the next.

    Args:
        around: what is watched.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._loads = 0
        self._last = Reading()
        self.begin()

    def begin(self) -> None:
        """Forgets what came before."""
        self._loads = self._around.ledger.loads
        self._last = self._around.telemetry.read()

    def end_round(self) -> Seen:
        """What was seen since the last round or `begin`."""
        before, loads = self._last, self._loads
        self.begin()
        known = [before.sm_clock_mhz, self._last.sm_clock_mhz]
        clock = min((clock for clock in known if clock is not None), default=None)
        if self._loads != loads:
            return Seen(clock, DiscardCode.COMPILED)
        throttled = is_throttled(before, self._last)
        return Seen(clock, DiscardCode.THROTTLED if throttled else None)
