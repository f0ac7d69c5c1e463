"""What a gate consists of: process-rounds of arms, each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from bt_bench.names import Operation


class GateArm(StrEnum):
    """What a process measures in a round."""

    BASE = "base"
    HEAD = "head"
    CONTROL = "control"  # the base once more, which nothing but noise can tell from it


@dataclass(frozen=True, order=True)
class Subject:
    """One value that every process-round has: a metric of a variant in a case."""

    operation: Operation
    case: str
    variant: str
    metric: str


@dataclass(frozen=True)
class GateRound:
    """One round: each arm measured once, by a fresh process, one after the other.

    Args:
        order: of the arms in time.
        values: per arm the median of each subject; a subject that was not measured is absent.
    """

    order: tuple[GateArm, ...]
    values: Mapping[GateArm, Mapping[Subject, float]]


class RoundSource(Protocol):
    """Where rounds come from: processes on a device, or a recording of such."""

    def take(self, count: int) -> list[GateRound]:
        """The next rounds."""
        ...
