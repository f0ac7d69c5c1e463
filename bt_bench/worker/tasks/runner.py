"""Runners of tasks, and the possible ends of a task.

Neither torch nor Triton is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from bt_bench.base.errors import BtBenchError
from bt_bench.results import Reason, ReasonCode
from bt_bench.worker.tasks.outcome import RoundProgress
from bt_bench.worker.tasks.tasks import ResultT, Task

ValueT_co = TypeVar("ValueT_co", covariant=True)


class WorkerError(BtBenchError):
    """No worker can do the task: a defect of bt-bench, or a device that is gone."""


@dataclass(frozen=True)
class Success(Generic[ValueT_co]):
    """The task is done."""

    value: ValueT_co


@dataclass(frozen=True)
class Failure:
    """The task failed.

    Args:
        reason: why it failed.
        place: index of the arm to blame among the arms of the attempt; `None` if unknown.
        worker_is_spent: whether the worker cannot continue, since its device or memory is gone.
        defect: the traceback, if bt-bench's own code raised an exception.
    """

    reason: Reason
    place: int | None
    worker_is_spent: bool
    defect: str | None = None

    @property
    def may_pass(self) -> bool:
        """Return whether the task may be retried: the cause may lie outside the arm."""
        return self.reason.code is ReasonCode.CRASHED or self.defect is not None


Attempt = Success[Any] | Failure


@dataclass(frozen=True)
class Setback:
    """A failure that did not recur when the task was repeated.

    Args:
        reason: the failure.
        arm: the arm that failed; `None` if unknown.
    """

    reason: Reason
    arm: str | None


@dataclass(frozen=True)
class Finished(Generic[ResultT]):
    """A finished task.

    Args:
        value: the result, for the arms that are not in `failed`.
        failed: arms that were left out, with the reason.
        setbacks: earlier failures that no arm was left out for.
    """

    value: ResultT
    failed: dict[str, Reason]
    setbacks: tuple[Setback, ...] = ()

    def after(self, setbacks: Sequence[Setback]) -> Finished[ResultT]:
        """Return this with earlier setbacks added, except those that recurred in `failed`."""
        codes = {reason.code for reason in self.failed.values()}
        kept = [
            each
            for each in setbacks
            if (each.reason.code not in codes if each.arm is None else each.arm not in self.failed)
        ]
        return replace(self, setbacks=(*kept, *self.setbacks))


class Watcher(Protocol):
    """A listener to the events of a task."""

    def round(self, progress: RoundProgress) -> None:
        """Receive the progress of a case's rounds."""

    def worker_replaced(self, why: str) -> None:
        """Receive the reason why a fresh worker goes on with the task."""


class Runner(Protocol):
    """A runner of tasks, in this process or another."""

    def run(
        self, task: Task[ResultT], arms: Sequence[str], watcher: Watcher | None = None
    ) -> Finished[ResultT]:
        """Do a task with some arms.

        Raises:
            WorkerError: if it cannot be done even without any arm.
        """

    def renew(self) -> None:
        """Have a fresh process do the next task, if tasks run in a process of their own."""

    def abandon(self) -> None:
        """End the process and begin no other, so that a task in another thread ends at once."""

    @property
    def calls_made(self) -> int:
        """Return how many calls of a scenario were made before the last task failed."""
