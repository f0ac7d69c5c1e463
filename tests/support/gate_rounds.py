"""Rounds with made-up values, for tests of the gate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bt_bench.results.gate.rounds import GateArm, GateRound, SeriesKey
from bt_bench.suites.block_tables import operations as ops

ARMS = tuple(GateArm)
BASE, HEAD, CONTROL = ARMS


class Replay:
    """A source of these rounds, in their order; notes what it was asked for."""

    def __init__(self, rounds: Sequence[GateRound]) -> None:
        self._rounds = list(rounds)
        self.asked: list[int] = []

    def take(self, count: int) -> list[GateRound]:
        self.asked.append(count)
        taken, self._rounds = self._rounds[:count], self._rounds[count:]
        return taken


def subject(case: str = "case", metric: str = "host_us", variant: str = "fused") -> SeriesKey:
    return SeriesKey(ops.STEP, case, variant, metric)


def make_rounds(
    count: int,
    levels: dict[SeriesKey, tuple[float, float, float]],
    noise: float = 0.005,
    seed: int = 0,
) -> list[GateRound]:
    """Rounds with white noise around the levels of base, head and control."""
    generator = np.random.default_rng(seed)
    rounds = []
    for _ in range(count):
        values = {
            arm: {
                one: level[place] * float(np.exp(noise * generator.normal()))
                for one, level in levels.items()
            }
            for place, arm in enumerate(ARMS)
        }
        rounds.append(GateRound(ARMS, values))
    return rounds


def without(
    rounds: Sequence[GateRound], arm: GateArm, one: SeriesKey, keep: int
) -> list[GateRound]:
    """The rounds with one value absent, except in the first `keep`."""
    return [
        GateRound(
            taken.order,
            {
                name: {s: v for s, v in row.items() if index < keep or (name, s) != (arm, one)}
                for name, row in taken.values.items()
            },
        )
        for index, taken in enumerate(rounds)
    ]
