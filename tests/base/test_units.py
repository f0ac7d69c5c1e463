"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bt_bench.base.units import format_bytes, format_number, format_percent


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (0, "0"),
        (1, "1.000"),
        (62.1, "62.10"),
        (0.0621, "0.06210"),
        (-8.75, "-8.750"),
        (9.9996, "10.00"),
        (999.96, "1000"),
        (123456.7, "123457"),
        (0.000001234, "0.000001234"),
        (0.0000001234, "1.234e-07"),
        (5e-324, "4.941e-324"),
        (1e14, "100000000000000"),
        (1e15, "1.000e+15"),
        (1.7e308, "1.700e+308"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="is not a finite number"):
        format_number(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1024, "1.000 KiB"),
        (1536, "1.500 KiB"),
        (1024**2 - 1, "1.000 MiB"),
        (16 * 1024**3, "16.00 GiB"),
        (5 * 1024**5, "5120 TiB"),
    ],
)
def test_bytes(value: int, text: str) -> None:
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (-0.04, "0.0"), (-3.0, "-3.0"), (63.57, "63.6"), (1e6, "1000000.0")],
)
def test_percent(value: float, text: str) -> None:
    assert format_percent(value) == text


@given(st.floats(-1e307, 1e307), st.integers(1, 9))
def test_a_printed_number_is_the_value_to_its_digits(value: float, digits: int) -> None:
    printed = float(format_number(value, digits))
    assert printed == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits), abs=5e-324)


@given(st.floats(1e-6, 1e14), st.integers(1, 9))
def test_a_printed_number_has_its_significant_digits(value: float, digits: int) -> None:
    text = format_number(value, digits)
    significant = text.replace(".", "").lstrip("0")
    assert len(significant) == digits or ("." not in text and len(significant) > digits)
