"""Results of measuring a case, for the process that stores them and for progress reports."""

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
    """The progress of a phase of a task, such as a check or a measurement.

    Args:
        done: number of finished rounds; other phases count their own parts.
        rounds: the maximum number of rounds.
        what: the phase.
        half_width_percent: half the width of the widest 95 % interval so far, in percent of its
            median; `None` while there are too few rounds.
        seconds_left: estimate of the time that the case's rounds still take.
        is_news: whether it belongs in a log, too, such as a wait that does not end.
    """

    done: int
    rounds: int
    what: str = "measuring"
    half_width_percent: float | None = None
    seconds_left: float | None = None
    is_news: bool = False


OnRound = Callable[[RoundProgress], object]


def untold(_progress: RoundProgress) -> None:
    """Ignore progress."""


def told_in_parts(on_round: OnRound, what: str, total: int) -> Callable[[], None]:
    """Report the beginning of a phase, and return a callback that reports each finished part.

    A phase without parts is not reported.
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
    """The measurements of one arm, or the reason why some or all of them are missing."""

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
    """The traces of a timeline.

    Args:
        source: the profiler, with its version.
        missing: the information that the profiler does not provide, as clauses.
        seconds: the total time taken.
        empty: empty calls under each kind of tracing.
        ranges: the name of the NVTX range of each variant's step.
        steps: the steps of each variant under each kind of tracing.
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
