"""Inference from samples: pure functions on numpy arrays, each with the source of its formula.

`samples` describes the observations; this module draws conclusions from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from bt_bench.analysis.statistics.samples import MIN_CLUSTERS, Interval, Samples
from bt_bench.analysis.statistics.student import t_critical, t_quantile, t_tail

LARGEST_LOG = 700.0
"""Largest logarithm whose ratio a float holds; for two measurable times it is below 50."""


@dataclass(frozen=True)
class Estimate:
    """A location and its uncertainty.

    Args:
        location: the estimate.
        error: its standard error.
        degrees: degrees of freedom of the t distribution of (location - truth) / error.
        observations: how many observations count as independent.
    """

    location: float
    error: float
    degrees: int
    observations: int

    @property
    def is_finite(self) -> bool:
        """Return whether location and error are finite; they are not if figures overflow."""
        return math.isfinite(self.location) and math.isfinite(self.error)

    def interval(self, confidence: float) -> Interval:
        """Return Student's interval, two-sided."""
        half_width = t_quantile((1 + confidence) / 2, self.degrees) * self.error
        return Interval(self.location - half_width, self.location + half_width, confidence)

    def bounds(self, level_low: float, level_high: float) -> tuple[float, float]:
        """Return Student's one-sided lower and upper bounds of the truth.

        Each end is at a level of its own: the probability that the truth lies beyond it. So a
        one-sided test at that level rejects exactly the values beyond the end.
        """
        return (
            self.location - t_critical(level_low, self.degrees) * self.error,
            self.location + t_critical(level_high, self.degrees) * self.error,
        )

    def tail_above(self, bound: float) -> float:
        """Return the probability of an estimate as large or larger if the truth were `bound`.

        It is 1 if the estimate is not finite, since that shows nothing.
        """
        if not self.is_finite or math.isnan(bound):
            return 1.0
        if self.error == 0:
            return 0.0 if self.location > bound else 1.0
        return t_tail((self.location - bound) / self.error, self.degrees)

    def tail_below(self, bound: float) -> float:
        """Return the probability of an estimate as small or smaller if the truth were `bound`."""
        if not self.is_finite or math.isnan(bound):
            return 1.0
        if self.error == 0:
            return 0.0 if self.location < bound else 1.0
        return t_tail((bound - self.location) / self.error, self.degrees)


def trimmed_estimate(values: Samples, share: float = 0.2) -> Estimate | None:
    """Return the trimmed mean of independent values, which outliers cannot move.

    The `share` smallest and largest values are left out, and the error comes from the winsorized
    sum of squares: sqrt(SSD / (h (h - 1))) for the h values that are left, with h - 1 degrees of
    freedom. Sources: Tukey and McLaughlin, "Less Vulnerable Confidence and Significance Procedures
    for Location Based on a Single Sample", Sankhya A 25 (1963), 331-352; Yuen, "The Two-Sample
    Trimmed t for Unequal Population Variances", Biometrika 61 (1974), 165-170, for this form.

    Args:
        values: the values.
        share: share of the values left out on either side, at least 0 and less than 1/2.

    Returns:
        `None` if fewer than three values are left.
    """
    if not 0 <= share < 0.5:
        raise ValueError(f"share is {share}; expected at least 0 and less than 0.5")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    cut = int(share * count)
    left = count - 2 * cut
    if left < MIN_CLUSTERS:
        return None
    location = float(ordered[cut : count - cut].mean())
    ordered[:cut] = ordered[cut]
    ordered[count - cut :] = ordered[count - cut - 1]
    squares = float(np.square(ordered - ordered.mean()).sum())
    return Estimate(location, math.sqrt(squares / (left * (left - 1))), left - 1, count)


def ratio_of(log: float) -> float:
    """Return the ratio with this natural logarithm, or the largest that a number can hold.

    Ends of intervals from three rounds can be far beyond it.
    """
    return math.exp(min(log, LARGEST_LOG))


@dataclass(frozen=True)
class GeometricMean:
    """The geometric mean of ratios; `interval` is `None` below two of them."""

    ratio: float
    interval: Interval | None


def geometric_mean(ratios: Samples, confidence: float = 0.95) -> GeometricMean:
    """Return the geometric mean, with Student's interval of the mean logarithm.

    Source of the mean: Fleming and Wallace, "How Not to Lie with Statistics: The Correct Way to
    Summarize Benchmark Results", Communications of the ACM 29 (1986), 218-221; of the interval:
    Student, "The Probable Error of a Mean", Biometrika 6 (1908), 1-25.

    Args:
        ratios: positive ratios, at least one.
        confidence: of the interval, which takes the ratios for independent.
    """
    array = np.asarray(ratios, dtype=np.float64)
    if array.size == 0 or not ((array > 0) & np.isfinite(array)).all():
        raise ValueError("expected at least one ratio, and all of them positive and finite")
    logs = np.log(array)
    center, count = float(logs.mean()), len(logs)
    if count < 2:
        return GeometricMean(ratio_of(center), None)
    error = float(logs.std(ddof=1)) / math.sqrt(count)
    interval = Estimate(center, error, count - 1, count).interval(confidence)
    low, high = ratio_of(interval.low), ratio_of(interval.high)
    return GeometricMean(ratio_of(center), Interval(low, high, confidence))


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Return the confidence interval of a rate.

    Source: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", Journal
    of the American Statistical Association 22 (1927), 209-212.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(
            f"{successes} successes of {trials} trials; expected at least one trial, and 0 to all "
            "of them successful"
        )
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate = successes / trials
    center = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = (
        z
        / (1 + z * z / trials)
        * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    )
    # The ends are exact at none and all, where rounding would leave a remainder.
    low = max(0.0, center - half) if successes else 0.0
    high = min(1.0, center + half) if successes < trials else 1.0
    return Interval(low, high, confidence)
