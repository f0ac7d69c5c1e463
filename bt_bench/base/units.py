"""Formatting of numbers: values are kept in base units (µs, bytes) and scaled only for printing."""

from __future__ import annotations

import math

DIGITS = 4

_BYTE_SCALES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def format_number(value: float, digits: int = DIGITS) -> str:
    """Format a value with `digits` significant digits: 0.06210, 62.10, 6210.

    Digits before the point are never replaced by zeros. An exponent is used only beyond 10¹⁵ or
    below 10⁻⁶. Zero is `0`.

    Raises:
        ValueError: if the value is not finite.
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    if value == 0:
        return "0"
    # The exponent is taken after rounding, else 9.9996 would get a digit too many.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    if not -6 <= exponent < 15:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(digits - 1 - exponent, 0)}f}"


def format_factors(*factors: float) -> list[str]:
    """Return factors with enough digits to show one percent of the largest: `1.27`, `8.7`."""
    largest = max(factors)
    decimals = 2 if largest < 8 else 1 if largest < 100 else 0
    return [f"{factor:.{decimals}f}" for factor in factors]


def format_percent(value: float, decimals: int = 1) -> str:
    """Format a percentage with `decimals` decimals and no sign for zero: 78.1, -3.0, 0.0."""
    text = f"{value:.{decimals}f}"
    return text if float(text) else text.removeprefix("-")


def unit_text(unit: str) -> str:
    """Return a metric's unit as people write it: `µs` for `us`."""
    return "µs" if unit == "us" else unit


def format_share(share: float, digits: int = 3) -> str:
    """Format a share in percent, to `digits` digits or to the point: `0.64 %`, `1395 %`."""
    percent = 100 * share
    whole = 10**digits - 0.5 <= abs(percent) < math.inf
    return f"{percent:.0f} %" if whole else f"{percent:.{digits}g} %"


def format_bytes(value: float, digits: int = DIGITS) -> str:
    """Format a number of bytes in a suitable unit: 512 B, 1.500 KiB, 139.8 GiB."""
    for unit, scale in _BYTE_SCALES:
        if _reaches_one(value / scale, digits):
            return f"{format_number(value / scale, digits)} {unit}"
    return f"{value:.0f} B"


def _reaches_one(value: float, digits: int) -> bool:
    """Return whether a value is at least 1 once rounded: 0.99996 KiB prints as `1.000 KiB`."""
    return abs(float(f"{value:.{digits - 1}e}")) >= 1
