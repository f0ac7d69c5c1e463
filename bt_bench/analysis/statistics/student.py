"""Student's t distribution: tails and quantiles."""

from __future__ import annotations

import math
from functools import lru_cache

_LARGEST = 1e150  # its square is still a number

_LEVELS = 1 << 16
"""Quantiles that are kept. Holm's correction has a level of its own for each test of a family, and
the families of all variants have the same ones: thousands, in a run of thousands of cases."""

LEAST_BY_QUANTILE = 1e-6
"""Below this level, 1 minus the level has too few digits left for `t_quantile`."""


@lru_cache(maxsize=_LEVELS)
def t_quantile(probability: float, degrees: int) -> float:
    """Return a quantile of Student's t distribution, by bisection of its distribution function.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), formulas 26.7.3 and
    26.7.4: finite sums for whole degrees of freedom.

    Args:
        probability: above 0 and below 1.
        degrees: degrees of freedom, at least 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability {probability} is not between 0 and 1")
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom; expected 1 or more")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    # Bisect the angle in t = sqrt(degrees) tan(angle), which maps the whole axis to an interval.
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if (1 + _t_central_mass(middle, degrees)) / 2 < probability:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan((low + high) / 2)


@lru_cache(maxsize=_LEVELS)
def t_critical(level: float, degrees: int) -> float:
    """Return the value that Student's t exceeds with this probability, even a tiny one.

    Args:
        level: above 0 and below 1.
        degrees: degrees of freedom, at least 1.
    """
    if level >= LEAST_BY_QUANTILE:
        return t_quantile(1 - level, degrees)
    # Far out in the tail, relative precision matters: bisect the logarithm.
    low, high = 0.0, math.log(_LARGEST)
    for _ in range(60):
        middle = (low + high) / 2
        if t_tail(math.exp(middle), degrees) > level:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


@lru_cache(maxsize=4096)
def t_tail(value: float, degrees: int) -> float:
    """Return P(T > value) for Student's t distribution.

    It is half the regularised incomplete beta function at d / (d + t²), with d / 2 and 1 / 2, so
    tails far below the rounding error of 1 are exact as well. Source: Abramowitz and Stegun (1964),
    formula 26.7.1; the continued fraction 26.5.8, evaluated as in Lentz, "Generating Bessel
    Functions in Mie Scattering Calculations Using Continued Fractions", Applied Optics 15 (1976),
    668-671.

    Args:
        value: where the tail begins.
        degrees: degrees of freedom, at least 1.
    """
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom; expected 1 or more")
    square = value * value
    tail = _beta_share(degrees / (degrees + square), degrees / 2, 0.5) / 2
    return tail if value >= 0 else 1 - tail


def _t_central_mass(angle: float, degrees: int) -> float:
    """Return P(|T| <= t) for t = sqrt(degrees) tan(angle)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd, square = degrees % 2, cosine**2
    total, term = 0.0, cosine if odd else 1.0
    for above in range(1 + odd, degrees, 2):
        total += term
        term *= square * above / (above + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def _beta_share(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I(x; a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the complement converges faster here
        return 1 - _beta_share(1 - x, b, a)
    log_beta, terms = _beta_terms(a, b)
    log_front = a * math.log(x) + b * math.log1p(-x) - math.log(a)
    log_front += log_beta
    fraction, above, below = 2.0, 2.0, 1.0  # after the first step, whose term is 1
    for index, (numerator, denominator) in enumerate(terms):
        term = numerator * x / denominator
        below = 1 / (1 + term * below)
        above = 1 + term / above
        step = above * below
        fraction *= step
        if index > 0 and abs(step - 1) < 1e-15:
            break
    return math.exp(log_front) * (fraction - 1)


@lru_cache(maxsize=1024)
def _beta_terms(a: float, b: float) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Return the parts of I(x; a, b) without x: the logarithm of 1 / B(a, b), and the terms.

    Odd and even coefficients of the continued fraction alternate.
    """
    log_beta = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    terms = []
    for index in range(1, 400):
        half, is_odd = index // 2, index % 2
        numerator = -(a + half) * (a + b + half) if is_odd else half * (b - half)
        terms.append((numerator, (a + index - 1) * (a + index)))
    return log_beta, tuple(terms)
