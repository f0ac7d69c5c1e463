"""The smallest difference of two measurements that a run can tell from zero.

Two arms of one interleaved run are compared round by round. Four things limit this: the scatter of
the rounds' differences, how much an unchanged copy of an arm differed from it, the tick of the
clock, and the noise of the method itself. A difference below the largest of these is not
resolvable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from bt_bench.analysis.figures import figure_us
from bt_bench.analysis.statistics.samples import (
    clock_tick,
    clustered_interval,
    interquartile_range,
    median,
)
from bt_bench.analysis.statistics.student import t_quantile
from bt_bench.results import Calibration, CaseResult, Load, Measurement, Method, Series

CONFIDENCE = 0.99  # at most 1 in 100 pairs of equal arms seems to differ
BLOCKS = 8  # of consecutive rounds
TICKS = 2
EVENT_ROUNDING_US = 0.001  # device times are stored in whole nanoseconds

_FLOOR_FIGURES = {
    (Method.HOST_CLOCK, Load.IDLE): "empty_call",
    (Method.HOST_CLOCK, Load.BUSY): "empty_call",
    (Method.EVENTS, Load.IDLE): "event_floor",
    (Method.EVENTS, Load.BUSY): "event_floor_busy",
}
_TICK_FIGURE = "timer_tick"


class Limit(StrEnum):
    """What a difference has to exceed to be resolved."""

    INTERVAL = "interval"  # the scatter of the rounds' differences
    CONTROL = "control"  # the difference of an arm and its unchanged copy
    TICKS = "ticks"  # two ticks of the clock
    FLOOR = "floor"  # the noise of the method where there is nothing to measure


@dataclass(frozen=True)
class Paired:
    """Rounds that two measurements of one run have in common.

    Args:
        rounds: indices of the rounds in the log of the case.
        differences_us: per round, base minus other for each step of the window.
    """

    rounds: list[int]
    differences_us: list[list[float]]


@dataclass(frozen=True)
class Resolution:
    """The smallest resolvable difference, as the largest of its parts; `None` is unknown.

    Args:
        instances_us: half-width of the 99 % interval of the paired differences, with the rounds of
            an instance as one observation.
        blocks_us: the same, with each of `BLOCKS` blocks of consecutive rounds as one.
        white_us: the same, if rounds were independent.
        control_us: how much an unchanged copy differed from its arm, the larger of both cases.
        ticks_us: two ticks of the clock.
        floor_us: interquartile range of what the method reports for nothing.
        instances: how many copies of the tables the rounds used.
        rounds: how many rounds were paired.
    """

    instances_us: float
    blocks_us: float
    white_us: float
    control_us: float | None
    ticks_us: float | None
    floor_us: float | None
    instances: int
    rounds: int

    @property
    def interval_us(self) -> float:
        """Half-width of the interval of the difference, for both reasons why rounds are correlated.

        Their variances are added, less what both have in common: the scatter that rounds would have
        if they were independent. Never narrower than either. Source: Cameron, Gelbach and Miller,
        "Robust Inference with Multiway Clustering", Journal of Business & Economic Statistics 29
        (2011), 238-249.
        """
        # As products, since a power that no number can hold raises; infinity resolves nothing.
        squares = (
            self.instances_us * self.instances_us
            + self.blocks_us * self.blocks_us
            - self.white_us * self.white_us
        )
        if not math.isfinite(squares):
            return math.inf
        return max(math.sqrt(max(squares, 0.0)), self.instances_us, self.blocks_us)

    @property
    def parts_us(self) -> dict[Limit, float]:
        """The parts that are known."""
        parts = {
            Limit.INTERVAL: self.interval_us,
            Limit.CONTROL: self.control_us,
            Limit.TICKS: self.ticks_us,
            Limit.FLOOR: self.floor_us,
        }
        return {limit: part for limit, part in parts.items() if part is not None}

    @property
    def limit(self) -> Limit:
        """Which part is the largest."""
        return max(self.parts_us, key=self.parts_us.__getitem__)

    @property
    def smallest_us(self) -> float:
        """The smallest difference that can be told from zero."""
        return self.parts_us[self.limit]

    def resolves(self, difference_us: float) -> bool:
        """Whether a difference is larger than `smallest_us`."""
        return abs(difference_us) > self.smallest_us


def pair_rounds(base: Measurement, other: Measurement) -> Paired | None:
    """The rounds that two measurements of one run share; `None` if there are none.

    Arms of one interleaved run meet the same drift in a round, so that it cancels in their
    difference, but not in the difference of their medians. Source: matched pairs, e.g. Hollander,
    Wolfe and Chicken, Nonparametric Statistical Methods, 3rd edition (2013), chapter 3.
    Rounds with fewer steps in either, as an interrupted run may leave them, are left out.
    """
    of_other = dict(zip(other.rounds, other.samples, strict=True))
    paired = Paired([], [])
    for index, samples in zip(base.rounds, base.samples, strict=True):
        partners = of_other.get(index, [])
        if samples and len(samples) == len(partners):
            paired.rounds.append(index)
            differences = [mine - its for mine, its in zip(samples, partners, strict=True)]
            paired.differences_us.append(differences)
    return paired if paired.rounds else None


def resolve(
    base: CaseResult, other: CaseResult, series: Series, calibration: Calibration | None
) -> Resolution | None:
    """The smallest resolvable difference of a series between two cases of one run.

    Rounds of one instance share the luck of where its buffers lie, and rounds that follow each
    other share what the machine did at that time. Since instances take turns, neither shows in the
    other's scatter; so there is an interval for each, see `clustered_interval`.

    Args:
        base: a case.
        other: the same case of another arm, from the same rounds.
        series: what is compared.
        calibration: of the run; without one, tick and floor of the host clock are unknown.

    Returns:
        `None` where it cannot be told: not one series or one log of rounds, or fewer than three
        instances.
    """
    left, right = base.measurement(series), other.measurement(series)
    if left is None or right is None or base.rounds is None or other.rounds is None:
        return None
    instances = base.rounds.instance
    paired = pair_rounds(left, right)
    if paired is None or instances != other.rounds.instance:
        return None
    of_rounds = [instances[index] for index in paired.rounds]
    medians = [row[0] if len(row) == 1 else median(row) for row in paired.differences_us]
    blocks = [place * BLOCKS // len(medians) for place in range(len(medians))]
    by_instance = clustered_interval(medians, of_rounds, CONFIDENCE)
    by_block = clustered_interval(medians, blocks, CONFIDENCE)
    if by_instance is None or by_block is None:
        return None
    return Resolution(
        instances_us=by_instance.half_width,
        blocks_us=by_block.half_width,
        white_us=_white_half_width(medians, len(set(of_rounds))),
        control_us=_control_us((base, other), series),
        ticks_us=_ticks_us((left, right), calibration),
        floor_us=_floor_us(series, calibration),
        instances=len(set(of_rounds)),
        rounds=len(paired.rounds),
    )


def _white_half_width(differences: list[float], clusters: int) -> float:
    """Half-width of the interval of a median of independent values, with clusters' quantile.

    The deviation of a median is sqrt(pi / 2) times that of a mean. Source: David and Nagaraja,
    "Order Statistics", 3rd edition (2003), section 10.2. Here that of the values is 1.4826 times
    their median absolute deviation, which rare late rounds do not widen. That errs on the safe
    side, since this is subtracted.
    """
    center = median(differences)
    deviation = 1.4826 * median([abs(value - center) for value in differences])
    quantile = t_quantile((1 + CONFIDENCE) / 2, clusters - 1)
    return quantile * deviation * math.sqrt(math.pi / 2 / len(differences))


def _control_us(cases: Iterable[CaseResult], series: Series) -> float | None:
    spreads = [
        abs(spread.difference_us)
        for case in cases
        for spread in case.control_spreads
        if spread.series == series
    ]
    return max(spreads, default=None)


def _ticks_us(measurements: Iterable[Measurement], calibration: Calibration | None) -> float | None:
    """Two ticks: of the host's timer by calibration, else as the samples themselves show."""
    pair = tuple(measurements)
    if pair[0].method is Method.HOST_CLOCK:
        tick = figure_us(calibration, _TICK_FIGURE)
    else:
        # Each source by itself, since the gap between two of them is the difference in question.
        sources = [list(chain.from_iterable(taken.samples)) for taken in pair]
        sources.append(_floor_samples(pair[0], calibration))
        ticks = [clock_tick(source, EVENT_ROUNDING_US) for source in sources if source]
        tick = min((tick for tick in ticks if tick is not None), default=None)
    return None if tick is None else TICKS * tick


def _floor_us(series: Series, calibration: Calibration | None) -> float | None:
    samples = _floor_samples(series, calibration)
    return interquartile_range(samples) if samples else None


def _floor_samples(series: Series, calibration: Calibration | None) -> list[float]:
    """What the method reported where there was nothing to measure."""
    name = _FLOOR_FIGURES.get((series.method, series.load))
    return (calibration.samples(name) if calibration and name else None) or []
