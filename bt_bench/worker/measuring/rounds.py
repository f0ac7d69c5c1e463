"""The order of arms and instances, and the log of the rounds taken."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bt_bench.base.names import Operation
from bt_bench.results import DiscardCode, RoundKind, RoundLog
from bt_bench.worker.tasks.arm import Arm


@dataclass(frozen=True)
class ReplayWindow:
    """The arms and steps of a case to replay, and the operation to time.

    Each variant has several instances, each with its own buffers. The place of a buffer in host
    memory changes the time of a kernel that reads it by microseconds, for as long as the buffer
    lives. With only one instance, that would look like a property of the variant.

    Args:
        case: the case's name, for NVTX ranges.
        instances: for each instance its arms, one per variant, in the state before the first step.
        steps: the steps, on the arms' device.
        operation: the operation to time in each step.
    """

    case: str
    instances: Sequence[Sequence[Arm]]
    steps: Sequence[Any]
    operation: Operation

    @property
    def names(self) -> list[str]:
        """Return the arms' names."""
        return [arm.name for arm in self.instances[0]]


@dataclass(frozen=True)
class Turn:
    """One round's instance, and its arms in the order of their runs."""

    instance: int
    arms: list[Arm]

    def place(self, name: str) -> int | None:
        """Return an arm's place in the order, 0 first; `None` if it takes no part."""
        names = [arm.name for arm in self.arms]
        return names.index(name) if name in names else None


class Turns:
    """The sequence of instances and of balanced orders of the arms, each order also in reverse.

    The first arm after a rewind is slower than the others, by 15 to 25 % on an H200's host, and an
    arm is faster after one that runs the same functions. So in the rounds of a cycle each arm is at
    each place equally often, and follows each other arm equally often. Each cycle draws anew which
    arm takes which part. Source: Williams, "Experimental Designs Balanced for the Estimation of
    Residual Effects of Treatments", Australian Journal of Scientific Research A 2 (1949), 149-168.

    Args:
        window: arms and instances.
        rng: draws the parts.
        taken: the instances that take turns; `None`: all.
    """

    def __init__(
        self, window: ReplayWindow, rng: random.Random, taken: Sequence[int] | None = None
    ) -> None:
        self._window = window
        self._rng = rng
        self._taken = range(len(window.instances)) if taken is None else taken
        self._count = 0  # of pairs, or of rounds alone
        self._orders: list[list[int]] = []
        self._back: list[int] | None = None

    def next_pair(self) -> tuple[Turn, Turn]:
        """Return the next two rounds, both on the next instance."""
        instance = self._next_instance()
        order = self._next_order()
        return self._turn(instance, order), self._turn(instance, order[::-1])

    def next_round(self) -> Turn:
        """Return the next round alone, on the next instance: few rounds reach more instances."""
        order, self._back = self._back, None
        if order is None:
            order = self._next_order()
            self._back = order[::-1]
        return self._turn(self._next_instance(), order)

    def _next_instance(self) -> int:
        self._count += 1
        return self._taken[(self._count - 1) % len(self._taken)]

    def _next_order(self) -> list[int]:
        """Return the next order as places of the arms; its reverse comes after it."""
        if not self._orders:
            count = len(self._window.names)
            parts = self._rng.sample(range(count), count)
            self._orders = [[parts[place] for place in order] for order in balanced_orders(count)]
            self._rng.shuffle(self._orders)
        return self._orders.pop()

    def _turn(self, instance: int, order: Sequence[int]) -> Turn:
        arms = self._window.instances[instance]
        return Turn(instance, [arms[place] for place in order])


def balanced_orders(count: int) -> list[list[int]]:
    """Return orders of `count` arms that are balanced together with their reverses; see `Turns`."""
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(count)]
    shifts = range(max(1, count if count % 2 else count // 2))
    return [[(step + shift) % count for step in zigzag] for shift in shifts]


def rounds_of_cycle(count: int) -> int:
    """Return the number of rounds after which orders of `count` arms are balanced."""
    return 2 * len(balanced_orders(count))


@dataclass
class RoundRecorder:
    """The log of a case's rounds.

    Args:
        names: the arms' names.
        clocks: the SM clock of each round in MHz; `None`: unknown.
    """

    names: Sequence[str]
    _kinds: list[RoundKind] = field(default_factory=list)
    _turns: list[Turn] = field(default_factory=list)
    _seconds: list[float] = field(default_factory=list)
    clocks: list[int | None] = field(default_factory=list)
    _discarded: list[DiscardCode | None] = field(default_factory=list)

    def add(
        self,
        kind: RoundKind,
        turn: Turn,
        seconds: float,
        sm_clock_mhz: int | None = None,
        discarded: DiscardCode | None = None,
    ) -> int:
        """Log a round and return its index."""
        self._kinds.append(kind)
        self._turns.append(turn)
        self._seconds.append(round(seconds, 4))
        self.clocks.append(sm_clock_mhz)
        self._discarded.append(discarded)
        return len(self._kinds) - 1

    def before(self, index: int, name: str, step: int) -> str | None:
        """Return the arm that ran just before an arm in a step; `None` after a rewind."""
        names = [arm.name for arm in self._turns[index].arms]
        place = names.index(name)
        return names[place - 1] if place or step else None

    def discard(self, index: int, code: DiscardCode) -> None:
        """Mark a round as discarded, unless it already is."""
        self._discarded[index] = self._discarded[index] or code

    def num_discarded(self) -> dict[DiscardCode, int]:
        """Return the number of rounds that do not count, by reason."""
        return dict(Counter(code for code in self._discarded if code is not None))

    def log_for(self, name: str) -> RoundLog:
        """Return the log as stored in the result of one arm."""
        return RoundLog(
            arms=list(self.names),
            kind=list(self._kinds),
            instance=[turn.instance for turn in self._turns],
            place=[turn.place(name) for turn in self._turns],
            seconds=list(self._seconds),
            sm_clock_mhz=list(self.clocks),
            discarded=list(self._discarded),
        )
