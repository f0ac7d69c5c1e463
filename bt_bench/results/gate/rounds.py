"""The rounds of a gate, in which every arm is measured by its own process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from bt_bench.base.names import Operation


class GateArm(StrEnum):
    """What a process measures in a round."""

    BASE = "base"
    HEAD = "head"
    CONTROL = "control"  # the base once more, which differs from it only by noise


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
        order: the arms in order of time.
        values: per arm, the median of each subject that was measured.
    """

    order: tuple[GateArm, ...]
    values: Mapping[GateArm, Mapping[Subject, float]]


class RoundSource(Protocol):
    """A source of rounds: processes on a device, or a recording."""

    def take(self, count: int) -> list[GateRound]:
        """The next rounds."""
        ...
