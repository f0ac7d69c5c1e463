"""The rounds of a gate: in each, fresh processes measure all arms side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from bt_bench.base.names import Operation
from bt_bench.results.run.nouns import Method


class GateArm(StrEnum):
    """An arm that is measured in a round."""

    BASE = "base"
    HEAD = "head"
    CONTROL = "control"  # the base once more, which differs from it only by noise


@dataclass(frozen=True, order=True)
class SeriesKey:
    """The subject of one value in every process-round: a metric of a variant in a case."""

    operation: Operation
    case: str
    variant: str
    metric: str


@dataclass(frozen=True)
class GateRound:
    """One round: all arms measured in turns by a fresh process.

    A variant that is measured apart has a process for each of its arms instead.

    Args:
        order: the arms in order of time.
        values: per arm, the median of each measured subject.
        ticks: by method, the tick in µs of the device's clock, as far as times showed it.
        device: number of the device that measured it, from 0, if there are several.
    """

    order: tuple[GateArm, ...]
    values: Mapping[GateArm, Mapping[SeriesKey, float]]
    ticks: Mapping[Method, float] = field(default_factory=dict)
    device: int = 0


class RoundSource(Protocol):
    """A source of rounds: processes on a device, or a recording."""

    def take(self, count: int) -> list[GateRound]:
        """Return the next rounds; fewer if no variant is left to measure."""
        ...
