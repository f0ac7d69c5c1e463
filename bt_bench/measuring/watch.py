"""What is watched while rounds are taken: throttling, clocks, and compilations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bt_bench.measuring.ports import Clock
from bt_bench.measuring.telemetry import Reading, Telemetry, is_throttled
from bt_bench.model import DiscardCode


class Loads(Protocol):
    """Counts the binaries that were compiled or loaded so far."""

    @property
    def loads(self) -> int:
        """The count."""
        ...


@dataclass(frozen=True)
class Surroundings:
    """Where rounds are taken.

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
    """What was seen around a round: the lower of both SM clocks, and why it does not count."""

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
