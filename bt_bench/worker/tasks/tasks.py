"""Tasks for workers, and their results.

These are passed between processes, and import neither torch nor Triton.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bt_bench.config import CaseSpec
from bt_bench.protocol import Operation
from bt_bench.results import (
    Calibration,
    CheckReport,
    LaunchCensus,
    Reason,
    Series,
    WorkloadRecord,
)
from bt_bench.worker.tasks.outcome import Measured, TimelineParts

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class CheckOutcome:
    """Outcome of one variant on one path: a report, or the reason why it failed."""

    report: CheckReport | None
    reason: Reason | None


CheckOutcomes = dict[tuple[str, Operation], CheckOutcome]


@dataclass(frozen=True)
class Checked:
    """A case's workload, and the outcome on each arm and operation."""

    workload: WorkloadRecord
    outcomes: CheckOutcomes


class Task(ABC, Generic[ResultT]):
    """A task for some arms; `doing` describes it in reasons."""

    @property
    @abstractmethod
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.doing


@dataclass(frozen=True)
class Calibrate(Task[Calibration | None]):
    """Measure what the harness itself costs; takes no arm."""

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return "calibrating"


@dataclass(frozen=True)
class CheckConformance(Task[CheckOutcomes]):
    """Check the arms on one of the conformance workloads."""

    workload: str
    operations: tuple[Operation, ...]

    @property
    def title(self) -> str:
        """How messages call the workload."""
        return f"conformance:{self.workload}"

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return f"{self.title}, while checked"


@dataclass(frozen=True)
class CheckCase(Task[Checked]):
    """Check the arms on the workload of a case."""

    case: CaseSpec
    operations: tuple[Operation, ...]

    @property
    def title(self) -> str:
        """How messages call the workload."""
        return self.case.name

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return f"{self.title}, while checked"


@dataclass(frozen=True)
class CountLaunches(Task[dict[tuple[str, Operation], LaunchCensus]]):
    """Count what each step of a case launches where the interpreter runs the kernels."""

    case: CaseSpec
    operations: tuple[Operation, ...]

    @property
    def title(self) -> str:
        """How messages call the workload."""
        return self.case.name

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return f"{self.title}, while its launches were counted"


@dataclass(frozen=True)
class MeasureCase(Task[dict[str, Measured]]):
    """Measure one operation on the workload of a case, all arms side by side."""

    case: CaseSpec
    operation: Operation

    @property
    def title(self) -> str:
        """The key of the case."""
        return f"{self.operation}/{self.case.name}"

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return "while measured"


@dataclass(frozen=True)
class TakeTimeline(Task[TimelineParts]):
    """Trace one step of a case, all arms side by side.

    Args:
        case: the workload.
        operation: what is called.
        step: its place in the window, from 0.
    """

    case: CaseSpec
    operation: Operation
    step: int

    @property
    def title(self) -> str:
        """The key of the case."""
        return f"{self.operation}/{self.case.name}"

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return "while traced"


@dataclass(frozen=True)
class RoundUnit:
    """One operation on one case, as part of a process-round.

    Args:
        case: the workload.
        operation: what is timed.
        series: what is wanted of it.
        variants: arms that take part, of those of the task.
        intruders: arms whose influence on the arm that runs next is told.
    """

    case: CaseSpec
    operation: Operation
    series: tuple[Series, ...]
    variants: tuple[str, ...]
    intruders: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RoundValue:
    """One series of one arm in a process-round.

    Args:
        operation: what was timed.
        case: on which workload.
        variant: the arm.
        series: what was taken.
        value: mean over steps, in the series' unit; of each step the mean of its faster samples.
        influence: log ratio of samples after an intruder to those after other arms, if known.
    """

    operation: Operation
    case: str
    variant: str
    series: Series
    value: float
    influence: float | None = None


@dataclass(frozen=True)
class RoundOutcome:
    """What a process-round found.

    Args:
        values: those that could be taken.
        changes: what of the process's global state has changed: per arm while it was imported, and
            under `""` since.
        other_threads: their share of the CPU time while rounds were timed.
        gpu_processes: how many processes have a context on the GPU; `None` if that is not known.
    """

    values: tuple[RoundValue, ...]
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    other_threads: float = 0.0
    gpu_processes: int | None = None


@dataclass(frozen=True)
class PrepareRound(Task[None]):
    """Set up everything that a process-round times, and run it once so nothing compiles later."""

    units: tuple[RoundUnit, ...]

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return "while set up"


@dataclass(frozen=True)
class MeasureRound(Task[RoundOutcome]):
    """Time once what was prepared; values that could not be taken are absent."""

    units: tuple[RoundUnit, ...]

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return "while measured"


@dataclass(frozen=True)
class ReadChanges(Task[dict[str, tuple[str, ...]]]):
    """What of the process's global state has changed: per arm while it was imported, `""`: since.

    Takes no arm.
    """

    @property
    def doing(self) -> str:
        """What is being done, as the beginning of a message."""
        return "while its global state was read"
