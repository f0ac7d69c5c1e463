"""Stopping criteria: when a case has been measured long enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from bt_bench.analysis import relative_half_width
from bt_bench.results import Plan, Series, StopReason

STABLE_CHECKS = 5
STABLE_WITHIN = 0.05
# The normal distribution's quantile for 95 %, times the ratio of a median's deviation to a mean's:
# the half-width of the median's interval is about 1.96 * 1.2533 * sigma / sqrt(n). Source: David
# and Nagaraja, "Order Statistics", 3rd edition (2003), section 10.2.
_WIDTH_OF_MEDIAN = 1.96 * math.sqrt(math.pi / 2)

Key = tuple[str, Series]


class Criterion(Protocol):
    """The decision whether to go on, made after each pair of rounds."""

    def add(self, values: Mapping[Key, float]) -> None:
        """Add the values of one round: per arm and series, the median over the steps."""

    def reason(self) -> StopReason | None:
        """Return why to stop now, or `None` to go on."""

    def half_width(self, keys: Iterable[Key] | None = None) -> float | None:
        """Return the widest relative half-width of the keys' intervals, by default of all."""

    def rounds_needed(self) -> float | None:
        """Return the estimated total number of rounds; `None` while there is no estimate."""


class RelativeWidth:
    """A criterion that stops when all intervals are narrow enough, or cannot become so.

    The noise of a series is 1.4826 times the median absolute deviation, divided by the median. If
    the noise of the noisiest series has stayed within `STABLE_WITHIN` for `STABLE_CHECKS` checks
    and implies more rounds than the plan allows, further rounds would change little.

    Args:
        plan: precision, and bounds on the rounds.
        check_every: rounds between two checks.
    """

    def __init__(self, plan: Plan, check_every: int) -> None:
        self._target = plan.precision_percent / 100
        self._min_rounds = plan.min_rounds
        self._max_rounds = plan.rounds
        self._check_every = max(1, check_every)
        self._values: dict[Key, list[float]] = {}
        self._rounds = 0
        self._widths: dict[Key, float | None] = {}
        self._noise: list[float] = []

    def add(self, values: Mapping[Key, float]) -> None:
        """Add the values of one round."""
        for key, value in values.items():
            self._values.setdefault(key, []).append(value)
        self._rounds += 1
        if self._rounds % self._check_every == 0:
            self._check()

    def reason(self) -> StopReason | None:
        """Return `PRECISE`, `STABLE`, or `None` to go on; never stop before `min_rounds`."""
        if not self._target or self._rounds < self._min_rounds:
            return None
        width = self.half_width()
        if width is not None and width <= self._target:
            return StopReason.PRECISE
        needed = self.rounds_needed()
        if self._is_stable() and needed is not None and needed > self._max_rounds:
            return StopReason.STABLE
        return None

    def half_width(self, keys: Iterable[Key] | None = None) -> float | None:
        """Return the widest relative half-width at the last check; `None` if one is unknown."""
        chosen = list(self._widths) if keys is None else list(keys)
        widths = [self._widths.get(key) for key in chosen]
        known = [width for width in widths if width is not None]
        return max(known) if known and len(known) == len(widths) else None

    def rounds_needed(self) -> float | None:
        """Return the number of rounds at which the noisiest series would reach the precision."""
        if not self._noise or not self._target:
            return None
        return (_WIDTH_OF_MEDIAN * self._noise[-1] / self._target) ** 2

    def _check(self) -> None:
        self._widths = {key: relative_half_width(v) for key, v in self._values.items()}
        self._noise.append(max((_relative_noise(v) for v in self._values.values()), default=0.0))

    def _is_stable(self) -> bool:
        recent = self._noise[-STABLE_CHECKS:]
        if len(recent) < STABLE_CHECKS:
            return False
        return max(recent) - min(recent) <= STABLE_WITHIN * max(recent)


def _relative_noise(values: Sequence[float]) -> float:
    array = np.asarray(values)
    middle = float(np.median(array))
    if middle == 0:
        return 0.0
    return 1.4826 * float(np.median(np.abs(array - middle))) / middle
