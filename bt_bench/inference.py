"""From observations to probabilities: pure functions on numpy arrays, with their sources.

Like `stats`, but about what can be concluded rather than what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from bt_bench.stats import MIN_CLUSTERS, Interval, Samples, median, t_quantile, t_tail


@dataclass(frozen=True)
class Estimate:
    """A location and how well it is known.

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

    def interval(self, confidence: float) -> Interval:
        """Student's interval, two-sided."""
        half_width = t_quantile((1 + confidence) / 2, self.degrees) * self.error
        return Interval(self.location - half_width, self.location + half_width, confidence)

    def tail_above(self, bound: float) -> float:
        """Probability of an estimate as large as this or larger if the truth were `bound`."""
        if self.error == 0:
            return 0.0 if self.location > bound else 1.0
        return t_tail((self.location - bound) / self.error, self.degrees)

    def tail_below(self, bound: float) -> float:
        """Probability of an estimate as small as this or smaller if the truth were `bound`."""
        if self.error == 0:
            return 0.0 if self.location < bound else 1.0
        return t_tail((bound - self.location) / self.error, self.degrees)


def mean_estimate(values: Samples) -> Estimate | None:
    """The mean of independent values.

    Source: Student, "The Probable Error of a Mean", Biometrika 6 (1908), 1-25.

    Returns:
        `None` below three values.
    """
    array = np.asarray(values, dtype=np.float64)
    count = len(array)
    if count < MIN_CLUSTERS:
        return None
    error = float(array.std(ddof=1)) / math.sqrt(count)
    return Estimate(float(array.mean()), error, count - 1, count)


def clustered_estimate(values: Samples, clusters: Sequence[Hashable]) -> Estimate | None:
    """The mean of the clusters' medians; see `stats.clustered_interval` for why, and the source.

    Returns:
        `None` below three clusters.
    """
    groups: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        groups.setdefault(cluster, []).append(float(value))
    return mean_estimate([median(group) for group in groups.values()])


def holm(probabilities: Sequence[float]) -> list[float]:
    """Probabilities corrected so that any false rejection among all is as rare as one was.

    Whatever the tests' dependence. Source: Holm, "A Simple Sequentially Rejective Multiple Test
    Procedure", Scandinavian Journal of Statistics 6 (1979), 65-70.
    """
    order = sorted(range(len(probabilities)), key=probabilities.__getitem__)
    adjusted = [1.0] * len(order)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, (len(order) - rank) * probabilities[index])
        adjusted[index] = min(1.0, largest)
    return adjusted


def benjamini_hochberg(probabilities: Sequence[float]) -> list[float]:
    """Probabilities corrected so that of all rejections the expected share of false ones is bound.

    Source: Benjamini and Hochberg, "Controlling the False Discovery Rate", Journal of the Royal
    Statistical Society B 57 (1995), 289-300.
    """
    count = len(probabilities)
    order = sorted(range(count), key=probabilities.__getitem__)
    adjusted = [1.0] * count
    smallest = 1.0
    for rank in range(count, 0, -1):
        index = order[rank - 1]
        smallest = min(smallest, probabilities[index] * count / rank)
        adjusted[index] = smallest
    return adjusted


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Interval of a rate.

    Source: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", Journal
    of the American Statistical Association 22 (1927), 209-212.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes of {trials} trials; expected 0 to all of some")
    z = t_quantile((1 + confidence) / 2, 10_000)  # a normal quantile within 0.0003
    rate = successes / trials
    center = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = (
        z
        / (1 + z * z / trials)
        * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    )
    return Interval(max(0.0, center - half), min(1.0, center + half), confidence)
