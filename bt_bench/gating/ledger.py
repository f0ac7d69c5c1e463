"""The values of a gate's rounds, as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bt_bench.gating.rounds import GateArm, GateRound, Subject
from bt_bench.stats import FloatArray


class Ledger:
    """Values of all rounds so far, as one array per arm."""

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self.subjects = tuple(subjects)
        self._rows: dict[GateArm, list[list[float]]] = {arm: [] for arm in GateArm}

    def add(self, rounds: Sequence[GateRound]) -> None:
        """Adds rounds; what one lacks is kept as missing."""
        for taken in rounds:
            for arm, rows in self._rows.items():
                values = taken.values.get(arm, {})
                rows.append([values.get(subject, math.nan) for subject in self.subjects])

    @property
    def rounds(self) -> int:
        """How many there are."""
        return len(self._rows[GateArm.BASE])

    def values(self) -> dict[GateArm, FloatArray]:
        """Per arm an array [subjects, rounds]; NaN where missing."""
        shape = (-1, len(self.subjects))
        return {
            arm: np.array(rows, dtype=np.float64).reshape(shape).T
            for arm, rows in self._rows.items()
        }
