"""Scenarios for suites that have none of their own: workloads, instances, and what these do."""

from __future__ import annotations

from dataclasses import dataclass

from bt_bench.base.names import Path
from bt_bench.protocol import Workload


@dataclass(frozen=True)
class Instance:
    """An instance of the variant; it is set up before its first action.

    Args:
        workload: which of the scenario's workloads it is driven through.
        path: of the operations that are called in its steps, until it is rewound.
        like: it is set up by `Driver.like`, if another instance of its workload is there.
        shares: it is given the very inputs that other such instances are given.
    """

    workload: int
    path: Path
    like: bool
    shares: bool


@dataclass(frozen=True)
class Step:
    """An instance goes through its next step.

    Args:
        instance: which of the scenario's.
        fill: number that makes the garbage in its outputs before; `None`: what is there stays.
        again: how many times each call that may be is made once more.
    """

    instance: int
    fill: int | None
    again: int = 0


@dataclass(frozen=True)
class Rewind:
    """An instance is put back before the first step.

    Args:
        instance: which of the scenario's.
        path: of the operations that are called in its steps from here on.
    """

    instance: int
    path: Path


Action = Step | Rewind


@dataclass(frozen=True)
class Scenario:
    """Workloads with their names, instances that are driven through them, and what these do."""

    names: tuple[str, ...]
    workloads: tuple[Workload, ...]
    instances: tuple[Instance, ...]
    actions: tuple[Action, ...]
