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
    Method,
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
        """Return the activity, as the beginning of a message."""

    @property
    def title(self) -> str:
        """Return the task's name in messages."""
        return self.doing


@dataclass(frozen=True)
class Calibrate(Task[Calibration | None]):
    """Measure the cost of the harness itself; takes no arm."""

    doing = "calibrating"


@dataclass(frozen=True)
class CheckConformance(Task[CheckOutcomes]):
    """Check the arms on one of the conformance workloads."""

    workload: str
    operations: tuple[Operation, ...]

    @property
    def title(self) -> str:
        """Return the workload's name in messages."""
        return f"conformance:{self.workload}"

    @property
    def doing(self) -> str:
        """Return the activity, as the beginning of a message."""
        return f"{self.title}, while checked"


@dataclass(frozen=True)
class _WorkloadTask(Task[ResultT]):
    """A task for some operations on the workload of a case."""

    case: CaseSpec
    operations: tuple[Operation, ...]

    @property
    def title(self) -> str:
        """Return the workload's name in messages."""
        return self.case.name


@dataclass(frozen=True)
class CheckCase(_WorkloadTask[Checked]):
    """Check the arms on the workload of a case."""

    @property
    def doing(self) -> str:
        """Return the activity, as the beginning of a message."""
        return f"{self.title}, while checked"


@dataclass(frozen=True)
class CountLaunches(_WorkloadTask[dict[tuple[str, Operation], LaunchCensus]]):
    """Count the launches of each step of a case whose kernels run in the interpreter."""

    @property
    def doing(self) -> str:
        """Return the activity, as the beginning of a message."""
        return f"{self.title}, while its launches were counted"


@dataclass(frozen=True)
class _OperationTask(Task[ResultT]):
    """A task for one operation on the workload of a case, all arms side by side."""

    case: CaseSpec
    operation: Operation

    @property
    def title(self) -> str:
        """Return the key of the case."""
        return f"{self.operation}/{self.case.name}"


@dataclass(frozen=True)
class MeasureCase(_OperationTask[dict[str, Measured]]):
    """Measure one operation on the workload of a case, all arms side by side."""

    doing = "while measured"


@dataclass(frozen=True)
class TakeTimeline(_OperationTask[TimelineParts]):
    """Trace one step of a case, all arms side by side.

    Args:
        case: the workload.
        operation: the operation to call.
        step: the step's place in the window, from 0.
    """

    step: int

    doing = "while traced"


@dataclass(frozen=True)
class RoundUnit:
    """One operation on one case, as part of a process-round.

    Args:
        case: the workload.
        operation: the operation to time.
        series: the series to take.
        variants: the arms of the task that take part.
        intruders: arms whose influence on the arm that runs next is reported.
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
        operation: the timed operation.
        case: the name of its case.
        variant: the arm.
        series: the series.
        value: mean over steps, in the series' unit; each step counts with the mean of its faster
            samples.
        influence: log ratio of samples after an intruder to samples after other arms, if known.
    """

    operation: Operation
    case: str
    variant: str
    series: Series
    value: float
    influence: float | None = None


@dataclass(frozen=True)
class RoundOutcome:
    """The findings of a process-round.

    Args:
        values: the values that could be taken.
        changes: changes of the process's global state: per arm during its import, and under `""`
            since then.
        other_threads: other threads' share of the CPU time while rounds were timed.
        gpu_processes: number of processes with a context on the GPU; `None` if unknown.
        ticks: by method, the tick in µs of the device's clock, as far as times showed it.
        stops: in how many periods a CPU quota stopped the process while it measured.
    """

    values: tuple[RoundValue, ...]
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    other_threads: float = 0.0
    gpu_processes: int | None = None
    stops: int = 0
    ticks: Mapping[Method, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PrepareRound(Task[None]):
    """Set up everything that a process-round times, and run it once so nothing compiles later."""

    units: tuple[RoundUnit, ...]

    doing = "while set up"


@dataclass(frozen=True)
class MeasureRound(Task[RoundOutcome]):
    """Time everything that was prepared once; omit values that could not be taken."""

    units: tuple[RoundUnit, ...]

    doing = "while measured"


@dataclass(frozen=True)
class ReadChanges(Task[dict[str, tuple[str, ...]]]):
    """Read the changes of the process's global state: per arm during its import, `""`: since then.

    Takes no arm.
    """

    doing = "while its global state was read"
