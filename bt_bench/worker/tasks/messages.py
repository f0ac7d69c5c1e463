"""What a worker starts with, and what passes between it and its parent.

Neither torch nor Triton is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bt_bench.base.names import DeviceChoice, DeviceKind
from bt_bench.protocol import DEFAULT_REF, SuiteRef
from bt_bench.results import Environment, Plan
from bt_bench.variants import Isolation, VariantEntry
from bt_bench.worker.tasks.outcome import RoundProgress
from bt_bench.worker.tasks.runner import Attempt
from bt_bench.worker.tasks.tasks import Task


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
