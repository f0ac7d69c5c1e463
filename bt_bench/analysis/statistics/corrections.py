"""Corrections for many tests, with the resulting level of each test.

A corrected test is usually printed as an adjusted probability. Beside it stands the level that the
uncorrected probability is compared with, since the interval that shows a verdict is at that level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Corrected:
    """The corrected probabilities of a family, and their levels; lists in the order given.

    Args:
        adjusted: corrected probabilities; a test rejects where its own is at most alpha.
        levels: thresholds for the uncorrected probabilities, to the same effect.
    """

    adjusted: list[float]
    levels: list[float]


def uncorrected(probabilities: Sequence[float], alpha: float) -> Corrected:
    """Return probabilities as they are; NaN, which shows nothing, becomes 1."""
    return Corrected(_known(probabilities), [alpha] * len(probabilities))


def holm(probabilities: Sequence[float], alpha: float) -> Corrected:
    """Correct probabilities by Holm: alpha bounds the chance of any false rejection.

    The smallest of n probabilities is tested at alpha / n, the next at alpha / (n - 1), and so on,
    until one is not rejected; all others are then tested at that one's level, which they do not
    reach. This holds whatever the dependence of the tests. Source: Holm, "A Simple Sequentially
    Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6 (1979), 65-70.
    """
    known = _known(probabilities)
    order = sorted(range(len(known)), key=known.__getitem__)
    adjusted, levels = [1.0] * len(order), [alpha] * len(order)
    largest, rejecting, level = 0.0, True, alpha
    for rank, index in enumerate(order):
        largest = max(largest, (len(order) - rank) * known[index])
        adjusted[index] = min(1.0, largest)
        if rejecting:
            level = alpha / (len(order) - rank)
            rejecting = adjusted[index] <= alpha
        levels[index] = level
    return Corrected(adjusted, levels)


def benjamini_hochberg(probabilities: Sequence[float], alpha: float) -> Corrected:
    """Correct by Benjamini-Hochberg: alpha bounds the expected share of false rejections.

    Where k of n are rejected, these are tested at k alpha / n, and so are their intervals; the
    others at (k + 1) alpha / n, which they do not reach. Sources: Benjamini and Hochberg,
    "Controlling the False Discovery Rate", Journal of the Royal Statistical Society B 57 (1995),
    289-300; for the intervals, Benjamini and Yekutieli, "False Discovery Rate-Adjusted Multiple
    Confidence Intervals for Selected Parameters", Journal of the American Statistical Association
    100 (2005), 71-81.
    """
    known = _known(probabilities)
    count = len(known)
    order = sorted(range(count), key=known.__getitem__)
    adjusted = [1.0] * count
    smallest = 1.0
    for rank in range(count, 0, -1):
        index = order[rank - 1]
        smallest = min(smallest, known[index] * count / rank)
        adjusted[index] = smallest
    rejected = sum(each <= alpha for each in adjusted)
    levels = [
        alpha * (rejected if each <= alpha else min(count, rejected + 1)) / count
        for each in adjusted
    ]
    return Corrected(adjusted, levels)


def _known(probabilities: Sequence[float]) -> list[float]:
    # Comparisons with NaN are always false, so a NaN would break the sorting of the others, and
    # they could get each other's corrections.
    return [1.0 if math.isnan(each) else min(max(each, 0.0), 1.0) for each in probabilities]
