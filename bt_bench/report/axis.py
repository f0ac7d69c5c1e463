"""A logarithmic axis of speed-ups, and places of intervals on it: for pages and terminals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bt_bench.analysis import Judgement
from bt_bench.base import Interval, Tick

_NARROWEST = 1.1  # the factor that an axis spans at least, to each side that has figures
_FACTORS: tuple[tuple[float, ...], ...] = (
    (1.02, 1.05, 1.1),
    (1.05, 1.1, 1.2, 1.3, 1.5),
    (1.1, 1.25, 1.5, 2.0),
    (1.25, 1.5, 2.0, 3.0),
    (1.5, 2.0, 3.0, 5.0),
    (2.0, 4.0, 8.0, 16.0, 32.0),
    (5.0, 10.0, 20.0, 50.0, 100.0),
    (10.0, 100.0, 1e3, 1e4, 1e5, 1e6),
)
"""Factors of ticks, the narrower axes first; each list reaches further."""

_MOST_TICKS = 7
_LEAST_APART = 0.13
"""The share of the axis between ticks, so that their texts stay apart on a phone."""

_REACH = 0.25
"""Bounds the reach of an interval in `within_reach`: a quarter of the span of all estimates."""


@dataclass(frozen=True)
class SpeedUp:
    """A speed-up over the base with its interval: above 1 is faster."""

    low: float
    point: float
    high: float


def speed_up_of(judgement: Judgement) -> SpeedUp | None:
    """Return a judgement's ratio of times as a speed-up; `None` without a finite, positive one."""
    ratio = judgement.ratio
    if not ratio or not math.isfinite(ratio) or ratio < 0:
        return None
    low, high = judgement.low or ratio, judgement.high or ratio
    if not math.isfinite(high):
        return None
    return SpeedUp(1 / max(high, ratio), 1 / ratio, 1 / min(low, ratio))


@dataclass(frozen=True)
class LogAxis:
    """An axis from `first` to `last`, both positive."""

    first: float
    last: float

    def at(self, value: float) -> float:
        """Return the place of a value, as a share of the axis, within its ends."""
        span = math.log(self.last / self.first)
        return min(1.0, max(0.0, math.log(value / self.first) / span))

    def place(self, found: SpeedUp) -> Interval:
        """Return the places of an estimate and its interval."""
        beyond = found.low < self.first, found.high > self.last
        return Interval(
            self.at(found.low), self.at(found.point), self.at(found.high), beyond=beyond
        )

    def ticks(self) -> tuple[Tick, ...]:
        """Return ticks at round speed-ups, 1 among them."""
        return tuple(Tick(self.at(each), f"{each:.3g} ×", each == 1) for each in self._round())

    def change_ticks(self) -> tuple[Tick, ...]:
        """Return ticks at round changes of the time in percent; longer times are on the left."""
        times = LogAxis(1 / self.last, 1 / self.first)
        return tuple(
            Tick(
                1 - times.at(each), f"{100 * (each - 1):+.3g} %" if each != 1 else "0 %", each == 1
            )
            for each in reversed(times._round())
        )

    def _round(self) -> list[float]:
        """Return round factors on the axis that are far enough apart, 1 among them."""
        shown = [1.0]
        for factors in _FACTORS:
            both = {*map(_as_much_slower, factors), 1.0, *factors}
            shown = sorted(each for each in both if self.first <= each <= self.last)
            reached = factors[-1] >= max(self.last, 1 / self.first) / factors[0]
            if reached and len(shown) <= _MOST_TICKS:
                break
        kept = [1.0]
        for each in sorted(shown, key=lambda each: abs(math.log(each))):  # from 1 outwards
            if all(abs(self.at(each) - self.at(other)) >= _LEAST_APART for other in kept):
                kept.append(each)
        return sorted(kept)


def _as_much_slower(factor: float) -> float:
    """Return a round factor below 1 that is about as far from it: 0.95 of 1.05, 0.7 of 1.5."""
    return round(2 - factor, 2) if factor < 1.2 else float(f"{1 / factor:.1g}")


def axis_of(found: Iterable[SpeedUp]) -> LogAxis:
    """Return an axis that shows all of them, and 1."""
    low = high = 1.0
    for each in found:
        low, high = min(low, each.low), max(high, each.high)
    first = 1.0 if low >= 1 else min(low, 1 / _NARROWEST)
    last = 1.0 if high <= 1 else max(high, _NARROWEST)
    if first == last:
        first, last = 1 / _NARROWEST, _NARROWEST
    room = (last / first) ** 0.02
    return LogAxis(first / room, last * room)


def within_reach(found: Iterable[SpeedUp]) -> Iterator[SpeedUp]:
    """Yield the speed-ups with intervals that leave two thirds of an axis to the estimates.

    On a small axis one wide interval would push all estimates together. An interval ends where it
    is further from all estimates, and from 1, than a quarter of the distance between them.
    """
    kept = list(found)
    points = [1.0, *(each.point for each in kept)]
    reach = max(_NARROWEST, (max(points) / min(points)) ** _REACH)
    first, last = min(points) / reach, max(points) * reach
    for each in kept:
        yield SpeedUp(max(each.low, first), each.point, min(each.high, last))
