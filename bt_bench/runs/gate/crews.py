"""The processes of a round that is being taken, and the rounds of a batch that are whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bt_bench.results import GateArm, GateRound, Method, SeriesKey
from bt_bench.worker import Supervisor

Values = dict[GateArm, dict[SeriesKey, float]]
Ticks = dict[Method, float]  # of the device's clocks, in µs


@dataclass(frozen=True)
class Crew:
    """The arms and variants that one process of a round measures.

    Args:
        arms: in the order of their import.
        names: names of the variants.
    """

    arms: tuple[GateArm, ...]
    names: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        """Return whether several arms share the process."""
        return len(self.arms) > 1

    def place(self, arm_name: str) -> tuple[str, GateArm]:
        """Return the variant and the arm of a worker's arm name."""
        variant, _, arm = arm_name.rpartition("@")
        return variant, GateArm(arm)

    @property
    def arm_names(self) -> list[str]:
        """Return the names of its arms, each of a variant."""
        return [arm_name(name, arm) for name in self.names for arm in self.arms]


@dataclass
class Taking:
    """A round that is being taken.

    Args:
        order: the arms in the order of their import.
        crews: its processes.
        place: number of the device of all of them.
        left: how many of them have not measured yet.
        values: by arm.
        ticks: of the device's clocks.
    """

    order: tuple[GateArm, ...]
    crews: Sequence[Crew]
    place: int
    left: int
    values: Values = field(default_factory=dict)
    ticks: Ticks = field(default_factory=dict)


@dataclass
class Seat:
    """A process of a round, with the arms that are set up in it."""

    taking: Taking
    crew: Crew
    worker: Supervisor
    names: list[str] = field(default_factory=list)


@dataclass
class LostDevice:
    """A device that was given up while rounds were taken.

    Args:
        why: the reason.
        rounds: how many of its rounds are measured anew on others.
    """

    why: str
    rounds: int = 0


def arm_name(variant: str, arm: GateArm) -> str:
    """Return the name that a worker has for an arm of a variant."""
    return f"{variant}@{arm.value}"


def whole(batch: Sequence[Taking]) -> list[GateRound]:
    """Return the rounds that all of their processes have measured."""
    return [
        GateRound(
            tuple(dict.fromkeys(arm for crew in taking.crews for arm in crew.arms)),
            taking.values,
            taking.ticks,
            taking.place,
        )
        for taking in batch
        if not taking.left
    ]
