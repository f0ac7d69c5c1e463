"""Tasks for workers, and their answers.

These are passed between processes, and import neither torch nor Triton.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from bt_bench.config import CaseSpec
from bt_bench.errors import BtBenchError
from bt_bench.names import DeviceChoice, DeviceKind
from bt_bench.protocol import DEFAULT_REF, Operation, SuiteRef
from bt_bench.results import (
    Calibration,
    CheckReport,
    Environment,
    Plan,
    Reason,
    ReasonCode,
    Series,
    WorkloadRecord,
)
from bt_bench.variants import Isolation, VariantEntry
from bt_bench.worker.outcome import Measured, RoundProgress, TimelineParts

ResultT = TypeVar("ResultT")
ValueT_co = TypeVar("ValueT_co", covariant=True)


class WorkerError(BtBenchError):
    """No worker can do the task: a defect of bt-bench, or a device that is gone."""


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


@dataclass(frozen=True)
class Ahead:
    """A task that a worker begins before it is requested."""

    task: Task[Any]
    arms: tuple[str, ...]


@dataclass(frozen=True)
class ArmSetup:
    """An arm that a worker imports.

    Args:
        name: of the arm, which tasks use.
        entry: the file; the worker imports it, the parent never does.
        side: arms of one side share modules, and those of another see none of them.
        isolation: which files of a repository the side may use; `None`: any.
    """

    name: str
    entry: VariantEntry
    side: str = ""
    isolation: Isolation | None = None


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker starts with.

    Args:
        device: where it runs.
        arms: what it imports, in this order.
        plan: how it checks and measures.
        suite: of the variants; its modules are loaded before theirs.
        ahead: a task to begin at once; its outcome is reported when the same task is requested.
        watched: whether changes of the process's global state are looked for.
        copies: how many times the code of each arm is imported, for process-rounds.
        tracebacks: whether it sends the traceback of each failure of a variant.
    """

    device: DeviceChoice
    arms: tuple[ArmSetup, ...]
    plan: Plan
    suite: SuiteRef = DEFAULT_REF
    ahead: Ahead | None = None
    watched: bool = False
    copies: int = 1
    tracebacks: bool = False


def arms_of(
    entries: Iterable[VariantEntry], isolation: Isolation | None = None
) -> tuple[ArmSetup, ...]:
    """The variants of one side as arms of the same names."""
    return tuple(ArmSetup(entry.name, entry, isolation=isolation) for entry in entries)


@dataclass(frozen=True)
class Hello:
    """What a worker has found where it runs."""

    device: DeviceKind
    environment: Environment
    available_bytes: int | None
    native: Mapping[str, bool] = field(default_factory=dict)  # by arm: `VariantInfo.native`


@dataclass(frozen=True)
class Success(Generic[ValueT_co]):
    """The task is done."""

    value: ValueT_co


@dataclass(frozen=True)
class Failure:
    """The task failed.

    Args:
        reason: why.
        place: index of the arm to blame among the arms of the attempt; `None` if unknown.
        worker_is_spent: the worker cannot continue, since its device or memory is gone.
        defect: the traceback, if bt-bench's own code raised.
    """

    reason: Reason
    place: int | None
    worker_is_spent: bool
    defect: str | None = None

    @property
    def may_pass(self) -> bool:
        """Whether the cause may be outside of the arm, so that the task is tried once more."""
        return self.reason.code is ReasonCode.CRASHED or self.defect is not None


Attempt = Success[Any] | Failure


@dataclass(frozen=True)
class Setback:
    """A failure that did not recur when the task was repeated.

    Args:
        reason: what happened.
        arm: the arm that failed; `None` if unknown.
    """

    reason: Reason
    arm: str | None


@dataclass(frozen=True)
class Finished(Generic[ResultT]):
    """A task that is done.

    Args:
        value: its result, for the arms that are not in `failed`.
        failed: arms that were left out, with the reason.
        setbacks: failures on the way for which no arm was left out.
    """

    value: ResultT
    failed: dict[str, Reason]
    setbacks: tuple[Setback, ...] = ()

    def after(self, setbacks: Sequence[Setback]) -> Finished[ResultT]:
        """The same with what had gone wrong before; what came back is a reason in `failed`."""
        codes = {reason.code for reason in self.failed.values()}
        kept = [
            each
            for each in setbacks
            if (each.reason.code not in codes if each.arm is None else each.arm not in self.failed)
        ]
        return replace(self, setbacks=(*kept, *self.setbacks))


@dataclass(frozen=True)
class Refusal:
    """An error for the user; `text` is the message."""

    text: str


@dataclass(frozen=True)
class Defect:
    """An error of bt-bench itself; `text` is the traceback, `summary` one line of it."""

    text: str
    summary: str


@dataclass(frozen=True)
class Traceback:
    """All that Python says of a failure of a variant."""

    text: str


@dataclass(frozen=True)
class Request:
    """A task to run; all messages about it carry its number."""

    number: int
    task: Task[Any]
    arms: tuple[str, ...]


@dataclass(frozen=True)
class Message:
    """What a worker sends: progress, or an answer, to the request of that number.

    Number 0 belongs to no request: it marks the greeting of a worker that has started.
    """

    number: int
    content: Hello | RoundProgress | Traceback | Attempt | Refusal | Defect


class Watcher(Protocol):
    """Is told what happens during a task."""

    def round(self, progress: RoundProgress) -> None:
        """How far the rounds of a case are."""
        ...

    def worker_replaced(self, why: str) -> None:
        """A fresh worker goes on with the task."""
        ...


class Runner(Protocol):
    """Runs tasks, in this process or another."""

    def run(
        self, task: Task[ResultT], arms: Sequence[str], watcher: Watcher | None = None
    ) -> Finished[ResultT]:
        """Does a task with some arms.

        Raises:
            WorkerError: when it cannot be done even without any arm.
        """
        ...
