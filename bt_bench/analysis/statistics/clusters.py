"""Locations and standard errors for many cases at once, when rounds are correlated.

All cases here have the same log of rounds, so clusters are the same rows for all. Rounds of one
instance share the effect of where its buffers lie, and neighbouring rounds share the state of the
machine at that time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bt_bench.analysis.statistics.samples import MIN_CLUSTERS
from bt_bench.results import FloatArray, medians_over


@dataclass(frozen=True)
class Estimates:
    """Estimates of many cases; see `bt_bench.analysis.statistics.estimates.Estimate`.

    Args:
        location: per case. [C]
        error: its standard error. [C]
        degrees: degrees of freedom, the same for all cases.
        observations: clusters that count as independent, the same for all cases.
    """

    location: FloatArray
    error: FloatArray
    degrees: int
    observations: int


def clustered_medians(
    values: FloatArray, instances: Sequence[Hashable], num_blocks: int
) -> Estimates | None:
    """Return the median over the rounds of each case, with an error for both kinds of correlation.

    The standard error by clusters is the standard error of the mean of their medians. Source:
    Ibragimov and Müller, "t-Statistic Based Correlation and Heterogeneity Robust Inference",
    Journal of Business & Economic Statistics 28 (2010), 453-468. There is one by instances and one
    by blocks of rounds. Their variances are added, less the variance of independent rounds, which
    both contain; the result is never less than either. Source: Cameron, Gelbach and Miller, "Robust
    Inference with Multiway Clustering", Journal of Business & Economic Statistics 29 (2011),
    238-249. The degrees of freedom follow from the fewer clusters.

    Args:
        values: per case and round. [C, R]
        instances: of the rounds. [R]
        num_blocks: number of blocks of consecutive rounds.

    Returns:
        `None` with fewer than three instances or three rounds.
    """
    count = values.shape[1]
    by_instance = _rows_by(tuple(instances))
    by_block = _rows_by(tuple(place * num_blocks // count for place in range(count)))
    fewest = min(len(by_instance), len(by_block))
    if fewest < MIN_CLUSTERS:
        return None
    location = medians_over(values, axis=1)
    instances_error = _error_of_clusters(values, by_instance)
    blocks_error = _error_of_clusters(values, by_block)
    squares = instances_error**2 + blocks_error**2 - _white_error(values, location) ** 2
    either = np.maximum(instances_error, blocks_error)
    error = np.maximum(np.sqrt(np.maximum(squares, 0.0)), either)
    return Estimates(location, error, fewest - 1, fewest)


def less(minuend: Estimates, subtrahend: Estimates) -> Estimates:
    """Return the difference of two independent estimates; the squares of their errors are added.

    The degrees of freedom are the smaller of both, which is never too many. Source: e.g. Hsu,
    "Contributions to the Theory of Student's t-Test as Applied to the Problem of Two Samples",
    Statistical Research Memoirs 2 (1938), 1-24.
    """
    return Estimates(
        location=minuend.location - subtrahend.location,
        error=np.sqrt(minuend.error**2 + subtrahend.error**2),
        degrees=min(minuend.degrees, subtrahend.degrees),
        observations=min(minuend.observations, subtrahend.observations),
    )


@lru_cache(maxsize=256)  # cases of a run mostly have one log of rounds
def _rows_by(clusters: tuple[Hashable, ...]) -> tuple[list[int], ...]:
    rows: dict[Hashable, list[int]] = {}
    for row, cluster in enumerate(clusters):
        rows.setdefault(cluster, []).append(row)
    return tuple(rows.values())


def _error_of_clusters(values: FloatArray, clusters: Sequence[Sequence[int]]) -> FloatArray:
    """Return the standard error of the mean of the clusters' medians. [C, R] → [C]"""
    medians = np.empty((len(values), len(clusters)))
    # One call for all clusters of a size: with few rounds each, calls would dominate the time.
    for size in {len(rows) for rows in clusters}:
        places = [place for place, rows in enumerate(clusters) if len(rows) == size]
        rounds = values[:, [clusters[place] for place in places]]
        medians[:, places] = medians_over(rounds, axis=2)
    error: FloatArray = medians.std(axis=1, ddof=1) / math.sqrt(len(clusters))
    return error


def _white_error(values: FloatArray, location: FloatArray) -> FloatArray:
    """Return the standard error of the median of independent rounds. [C, R], [C] → [C]

    The standard deviation of a median is sqrt(pi / 2) times the standard deviation of a mean.
    Source: David and Nagaraja, "Order Statistics", 3rd edition (2003), section 10.2. The values'
    own is taken as 1.4826 times their median absolute deviation, which rare late rounds do not
    widen. This errs on the safe side, since the result is subtracted.
    """
    deviation = 1.4826 * medians_over(np.abs(values - location[:, None]), axis=1)
    error: FloatArray = deviation * math.sqrt(math.pi / 2 / values.shape[1])
    return error
