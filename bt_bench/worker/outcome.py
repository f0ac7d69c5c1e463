"""What measuring a case yields, for the process that stores it and for progress reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from bt_bench.results import (
    CompiledKernel,
    ControlSpread,
    LaunchCensus,
    Measurement,
    Reason,
    RoundLog,
    Stopping,
)


@dataclass(frozen=True)
class RoundProgress:
    """How far the rounds of a case are.

    Args:
        done: rounds that were taken.
        rounds: the most that there will be.
        half_width_percent: half of the widest 95 % interval so far, in percent of its median;
            `None` while there are too few rounds to say.
        seconds_left: estimate of the time that the case's rounds still take.
    """

    done: int
    rounds: int
    half_width_percent: float | None = None
    seconds_left: float | None = None


@dataclass
class Measured:
    """What was measured of one arm, or why part of it or all of it was not."""

    measurements: list[Measurement] = field(default_factory=list)
    control: list[Measurement] = field(default_factory=list)
    control_spreads: list[ControlSpread] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    launches: LaunchCensus | None = None
    compiled: list[CompiledKernel] | None = None
    rounds: RoundLog | None = None
    stopping: Stopping | None = None
    reason: Reason | None = None
