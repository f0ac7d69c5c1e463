"""The setup of a worker, and the messages between a worker and its parent.

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
        name: the arm's name, which tasks use.
        entry: the file; the worker imports it, the parent never does.
        side: arms of one side share modules, and see none of another side's.
        isolation: the files of a repository that the side may use; `None`: any.
    """

    name: str
    entry: VariantEntry
    side: str = ""
    isolation: Isolation | None = None


@dataclass(frozen=True)
class WorkerSetup:
    """The setup of a worker.

    Args:
        device: the device to run on.
        arms: the arms to import, in this order.
        plan: the settings for checking and measuring.
        suite: the variants' suite; its modules are loaded before theirs.
        ahead: a task to begin at once. Its outcome is dropped: the same task is requested later,
            and finds everything set up.
        watched: whether to look for changes of the process's global state.
        copies: how many times the code of each arm is imported, for process-rounds.
        tracebacks: whether to send the traceback of each failure of a variant.
        takes_turns: whether it takes turns with others at timing the host even without a GPU.
    """

    device: DeviceChoice
    arms: tuple[ArmSetup, ...]
    plan: Plan
    suite: SuiteRef = DEFAULT_REF
    ahead: Ahead | None = None
    watched: bool = False
    copies: int = 1
    tracebacks: bool = False
    takes_turns: bool = False


def arms_of(
    entries: Iterable[VariantEntry], isolation: Isolation | None = None
) -> tuple[ArmSetup, ...]:
    """Return the variants of one side as arms of the same names."""
    return tuple(ArmSetup(entry.name, entry, isolation=isolation) for entry in entries)


@dataclass(frozen=True)
class Hello:
    """The greeting of a worker: its device, and the environment that it found."""

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
    """The traceback of a variant's failure, as Python prints it."""

    text: str


@dataclass(frozen=True)
class Request:
    """A task to run; all messages about it carry its number."""

    number: int
    task: Task[Any]
    arms: tuple[str, ...]


@dataclass(frozen=True)
class Message:
    """A message of a worker: progress or an answer, to the request of that number.

    Number 0 belongs to no request: it marks the greeting of a worker that has started.
    """

    number: int
    content: Hello | RoundProgress | Traceback | Attempt | Refusal | Defect
