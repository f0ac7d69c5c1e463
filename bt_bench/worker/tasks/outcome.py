"""What measuring a case yields, for the process that stores it and for progress reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bt_bench.results import (
    CompiledKernel,
    ControlSpread,
    EmptyCalls,
    HostProfile,
    LaunchCensus,
    Measurement,
    Reason,
    RoundLog,
    Stopping,
    TracedSteps,
)


@dataclass(frozen=True)
class RoundProgress:
    """How far a phase of a task is: of a check, or of measuring.

    Args:
        done: rounds that were taken; in other phases whatever they count.
        rounds: the most that there will be.
        what: the phase.
        half_width_percent: half of the widest 95 % interval so far, in percent of its median;
            `None` while there are too few rounds to say.
        seconds_left: estimate of the time that the case's rounds still take.
    """

    done: int
    rounds: int
    what: str = "measuring"
    half_width_percent: float | None = None
    seconds_left: float | None = None


OnRound = Callable[[RoundProgress], object]


def untold(_progress: RoundProgress) -> None:
    """Tells nobody."""


def told_in_parts(on_round: OnRound, what: str, total: int) -> Callable[[], None]:
    """What to call whenever one of so many parts of a phase is done; says at once that it began.

    Nothing is said of a phase without parts.
    """
    done = 0

    def tell() -> None:
        nonlocal done
        done += 1
        on_round(RoundProgress(done, total, what))

    if total:
        on_round(RoundProgress(0, total, what))
    return tell


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


@dataclass
class TimelineParts:
    """What was traced for a timeline.

    Args:
        source: the profiler, with its version.
        missing: what it does not tell, as clauses.
        seconds: that all of it took.
        empty: empty calls under each kind of tracing.
        ranges: name of the NVTX range of each variant's step.
        steps: of each variant under each kind of tracing.
        host: the Python and C calls of each variant's step.
        failed: variants whose records cannot be right, with the reason.
    """

    source: str
    missing: list[str]
    seconds: float = 0.0
    empty: list[EmptyCalls] = field(default_factory=list)
    ranges: dict[str, str] = field(default_factory=dict)
    steps: dict[str, list[TracedSteps]] = field(default_factory=dict)
    host: dict[str, HostProfile] = field(default_factory=dict)
    failed: dict[str, Reason] = field(default_factory=dict)
