"""Rounds drawn from a recording rather than measured, to estimate how often a gate errs.

A `Population` draws the rounds of one gate after another; `ArraySource` passes such rounds to the
gate, slowed down where a test asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from bt_bench.base.errors import UsageError
from bt_bench.results import FloatArray, GateArm, GateRound, Recording, SeriesKey

ARMS = tuple(GateArm)
MIN_RECORDED_ROUNDS = 12


class Population(Protocol):
    """Equal code as a source of rounds for any number of gates."""

    @property
    def subjects(self) -> tuple[SeriesKey, ...]:
        """The subjects that every round measures."""
        ...

    @property
    def apart(self) -> Mapping[str, str]:
        """Variants whose arms ran in a process each, with the reason."""
        ...

    def draw(self, generator: np.random.Generator, rounds: int) -> FloatArray:
        """Draw values [rounds, arms, subjects] of one gate, arms as in `ARMS`; NaN if missing."""
        ...


class ArraySource:
    """A source of an array's rounds, in their order.

    Args:
        subjects: subjects of the last axis.
        values: [rounds, arms, subjects], arms as in `ARMS`.
        slowed: per subject, the share to slow the head by.
    """

    def __init__(
        self,
        subjects: Sequence[SeriesKey],
        values: FloatArray,
        slowed: Mapping[SeriesKey, float] | None = None,
    ) -> None:
        self._subjects = tuple(subjects)
        factors = np.ones((len(ARMS), len(self._subjects)))
        for subject, share in (slowed or {}).items():
            factors[ARMS.index(GateArm.HEAD), self._subjects.index(subject)] += share
        self._values = values * factors
        self._taken = 0

    def take(self, count: int) -> list[GateRound]:
        """Return the next rounds; fewer at the end."""
        rounds = self._values[self._taken : self._taken + count].tolist()
        self._taken += len(rounds)
        return [
            GateRound(ARMS, {arm: self._present(row) for arm, row in zip(ARMS, rows, strict=True)})
            for rows in rounds
        ]

    def _present(self, row: Sequence[float]) -> dict[SeriesKey, float]:
        pairs = zip(self._subjects, row, strict=True)
        return {subject: value for subject, value in pairs if value == value}  # NaN equals nothing


class RecordedPopulation:
    """Rounds of a recording of equal code, drawn anew for every gate.

    Blocks of neighbouring rounds are drawn, with replacement, which keeps the correlation between
    neighbours. The blocks wrap around, which makes all rounds equally likely. Within a round the
    arms are exchanged at random, all values of an arm together: they were the same code, whether
    copies in one process or processes of their own. Sources: Künsch, "The Jackknife and the
    Bootstrap for General Stationary Observations", Annals of Statistics 17 (1989), 1217-1241;
    Politis and Romano, "A Circular Block-Resampling Procedure for Stationary Data" (1992), for the
    wrapping; Hall, Horowitz and Jing, "On Blocking Rules for the Bootstrap with Dependent Data",
    Biometrika 82 (1995), 561-574, for the length of the blocks, the cube root of the number of
    rounds.

    Args:
        recording: a recording of arms with equal code.

    Raises:
        UsageError: if arms are missing or of different code, or rounds are too few or empty.
    """

    def __init__(self, recording: Recording) -> None:
        _check_equal_code(recording)
        self.subjects = tuple(recording.table())
        self.apart = recording.measured_apart()
        self._values = np.array(
            [
                [
                    [np.nan if value is None else value for value in taken.values[arm]]
                    if arm in taken.values
                    else [np.nan] * len(self.subjects)
                    for arm in ARMS
                ]
                for taken in recording.rounds
            ],
            dtype=np.float64,
        )

    def draw(self, generator: np.random.Generator, rounds: int) -> FloatArray:
        """Draw values [rounds, arms, subjects] of one gate."""
        recorded = len(self._values)
        length = round(recorded ** (1 / 3))
        starts = generator.integers(recorded, size=-(-rounds // length))
        chosen = (starts[:, None] + np.arange(length)).ravel()[:rounds] % recorded
        arms = generator.permuted(np.tile(np.arange(len(ARMS)), (rounds, 1)), axis=1)
        drawn: FloatArray = self._values[chosen[:, None], arms]
        return drawn


def _check_equal_code(recording: Recording) -> None:
    if recording.parts:
        raise UsageError(
            f"the recording is merged of {len(recording.parts)} shards, whose rounds are not of "
            "the same processes; expected the recording of one of them"
        )
    missing = [arm.value for arm in ARMS if arm not in recording.arms]
    if missing:
        raise UsageError(
            f"the recording has no arm {', '.join(missing)}; expected base, head and control"
        )
    base = recording.arms[GateArm.BASE]
    for arm, revision in recording.arms.items():
        if (revision.commit, revision.dirty) != (base.commit, base.dirty):
            raise UsageError(
                f"the recording's {arm.value} is of {revision.label}, but its base of "
                f"{base.label}; expected arms of equal code, which differ only by noise"
            )
    if not recording.subjects:
        raise UsageError(
            "the recording has no value in any round; expected at least one metric of a case"
        )
    if len(recording.rounds) < MIN_RECORDED_ROUNDS:
        raise UsageError(
            f"the recording has {len(recording.rounds)} rounds; expected at least "
            f"{MIN_RECORDED_ROUNDS} to draw from, and better 100"
        )
