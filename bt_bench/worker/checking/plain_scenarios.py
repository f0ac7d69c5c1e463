"""Scenarios for suites that have none of their own: workloads, instances and their actions."""

from __future__ import annotations

from dataclasses import dataclass

from bt_bench.base.names import Path
from bt_bench.protocol import Workload


@dataclass(frozen=True)
class Instance:
    """An instance of the variant; it is set up before its first action.

    Args:
        workload: index of its workload in the scenario.
        path: the path of the operations that its steps call, until it is rewound.
        like: whether `Driver.like` sets it up, if its workload has another instance already.
        shares: whether it is passed the same input objects as other instances that share.
    """

    workload: int
    path: Path
    like: bool
    shares: bool


@dataclass(frozen=True)
class NextStep:
    """The next step of an instance.

    Args:
        instance: index of the instance in the scenario.
        fill: number that determines the garbage in its outputs before; `None`: they are left as
            they are.
        again: number of repeats of each call that may be repeated.
    """

    instance: int
    fill: int | None
    again: int = 0


@dataclass(frozen=True)
class Rewind:
    """A return of an instance to before its first step.

    Args:
        instance: index of the instance in the scenario.
        path: the path of the operations that its steps call from here on.
    """

    instance: int
    path: Path


Action = NextStep | Rewind


@dataclass(frozen=True)
class PlainScenario:
    """Workloads with their names, the instances driven through them, and the actions in order."""

    names: tuple[str, ...]
    workloads: tuple[Workload, ...]
    instances: tuple[Instance, ...]
    actions: tuple[Action, ...]
