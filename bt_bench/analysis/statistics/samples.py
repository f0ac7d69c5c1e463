"""Statistics of samples: pure functions on numpy arrays, each with the source of its formula.

Nothing here is trimmed or smoothed: every sample that is passed in counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

import numpy as np

from bt_bench.results import FloatArray, SampleRows, medians_over

MIN_CLUSTERS = 3  # two show too little of how much clusters differ
Samples = Sequence[float] | FloatArray


@dataclass(frozen=True)
class Interval:
    """A confidence interval; `coverage` is the one its ranks reach, at least the requested one."""

    low: float
    high: float
    coverage: float

    @property
    def half_width(self) -> float:
        """Return half of its length."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Line:
    """A straight line: y = gradient x + intercept."""

    gradient: float
    intercept: float


def median(samples: Samples) -> float:
    """Return the middle order statistic, or the mean of the two middle ones.

    Source: Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician
    50 (1996), 361-365, definition 7 at p = 1/2.
    """
    return float(medians_over(_as_array(samples)))


def percentile(samples: Samples, percent: float) -> float:
    """Return the `percent`-th percentile, linear between order statistics.

    With n samples it lies at rank 1 + (n - 1) p, so 0 is the minimum and 100 the maximum. Source:
    Hyndman and Fan (1996), as in `median`, definition 7.
    """
    if not 0 <= percent <= 100:
        raise ValueError(f"percentile {percent} is not between 0 and 100")
    return float(np.percentile(_as_array(samples), percent))


def interquartile_range(samples: Samples) -> float:
    """Return third quartile minus first, both by definition 7 of Hyndman and Fan (1996)."""
    first, third = np.percentile(_as_array(samples), (25, 75))
    return float(third - first)


def median_interval(samples: Samples, confidence: float = 0.95) -> Interval | None:
    """Return a confidence interval of the median that assumes no distribution.

    The order statistics x(k) and x(n + 1 - k) enclose the median unless fewer than k samples lie on
    one side of it, and the number on one side is binomial with p = 1/2; so the coverage is 1 - 2
    P(B <= k - 1). The largest k is taken whose coverage is at least `confidence`. Source: David and
    Nagaraja, "Order Statistics", 3rd edition (2003), section 7.1. Samples are assumed independent;
    ties make it wider than needed, never narrower.

    Returns:
        `None` where even minimum and maximum do not reach `confidence` (n < 6 at 0.95).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    ordered = np.sort(_as_array(samples))
    rank, coverage = _median_rank(len(ordered), confidence)
    if rank == 0:
        return None
    return Interval(float(ordered[rank - 1]), float(ordered[-rank]), coverage)


def relative_half_width(samples: Samples, confidence: float = 0.95) -> float | None:
    """Return half the `median_interval`, as a share of the median.

    Returns:
        `None` where there is no interval, or the median is 0.
    """
    interval = median_interval(samples, confidence)
    center = median(samples)
    return None if interval is None or center == 0 else interval.half_width / abs(center)


def line_fit(x: Samples, y: Samples) -> Line:
    """Fit a straight line through points by ordinary least squares.

    Source: e.g. Draper and Smith, Applied Regression Analysis, 3rd edition (1998), section 1.2.

    Raises:
        ValueError: if there are no two different `x`, or not as many `y`.
    """
    xs, ys = _as_array(x), _as_array(y)
    if len(xs) != len(ys):
        raise ValueError(f"expected as many y as x, got {len(ys)} and {len(xs)}")
    from_mean = xs - xs.mean()
    spread = float(from_mean @ from_mean)
    if spread == 0:
        raise ValueError("expected at least two different x to fit a line")
    gradient = float(from_mean @ (ys - ys.mean())) / spread
    return Line(gradient, float(ys.mean()) - gradient * float(xs.mean()))


def step_medians(samples: Sequence[Sequence[float]]) -> FloatArray:
    """Return the median over the rounds for each step of a window, from `samples[round][step]`.

    Rounds of an interrupted run may be short; a step without any sample is left out.
    """
    rows = samples if isinstance(samples, SampleRows) else SampleRows.of(samples)
    if rows.width:
        return medians_over(rows.array)
    columns = ([x for x in column if x is not None] for column in zip_longest(*samples))
    return np.array([median(column) for column in columns if column], dtype=np.float64)


def _as_array(samples: Samples) -> FloatArray:
    array = np.asarray(samples, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"expected a list of at least one sample, got shape {array.shape}")
    return array


@lru_cache(maxsize=1024)
def _median_rank(count: int, confidence: float) -> tuple[int, float]:
    """Return the largest rank whose interval reaches `confidence` (0: none), and its coverage."""
    log_of_all = count * math.log(2)
    tail, rank, coverage = 0.0, 0, 0.0
    for successes in range(count // 2):
        ways = math.lgamma(count + 1) - math.lgamma(successes + 1)
        tail += math.exp(ways - math.lgamma(count - successes + 1) - log_of_all)
        if 1 - 2 * tail < confidence:
            break
        rank, coverage = successes + 1, 1 - 2 * tail
    return rank, coverage
