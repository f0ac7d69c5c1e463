"""Statistics against definitions that are slow and obvious."""

from __future__ import annotations

import math
from itertools import product
from statistics import median as median_of_the_standard_library

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bt_bench.analysis.statistics.samples import (
    Line,
    interquartile_range,
    line_fit,
    median,
    median_interval,
    percentile,
    relative_half_width,
    step_medians,
)
from bt_bench.analysis.statistics.student import t_quantile

SAMPLES = st.lists(st.floats(0, 1e9), min_size=1, max_size=60)


@given(SAMPLES)
def test_median(samples: list[float]) -> None:
    assert median(samples) == pytest.approx(median_of_the_standard_library(samples))


@given(SAMPLES, st.floats(0, 100))
def test_percentile_is_linear_between_order_statistics(
    samples: list[float], percent: float
) -> None:
    ordered = sorted(samples)
    rank = (len(samples) - 1) * percent / 100
    low, share = math.floor(rank), rank - math.floor(rank)
    high = min(low + 1, len(samples) - 1)
    expected = ordered[low] + share * (ordered[high] - ordered[low])
    assert percentile(samples, percent) == pytest.approx(expected, abs=1e-6)


def test_ends_of_percentile() -> None:
    assert (percentile([3.0, 1.0, 2.0], 0), percentile([3.0, 1.0, 2.0], 100)) == (1.0, 3.0)
    with pytest.raises(ValueError, match=r"percentile 101 is not between 0 and 100"):
        percentile([1.0], 101)


def test_interquartile_range() -> None:
    assert interquartile_range([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0
    assert interquartile_range([7.0]) == 0.0


@pytest.mark.parametrize("count", range(1, 13))
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_coverage_of_the_interval_over_all_ways_to_fall(count: int, confidence: float) -> None:
    """Each sample lies below or above the median with equal chance: all ways are counted."""
    ways = [sum(below) for below in product((0, 1), repeat=count)]

    def coverage(rank: int) -> float:
        return sum(rank <= below <= count - rank for below in ways) / len(ways)

    ranks = [rank for rank in range(1, count // 2 + 1) if coverage(rank) >= confidence]
    interval = median_interval([float(value) for value in range(count)], confidence)
    if not ranks:
        assert interval is None
        return
    assert (interval.low, interval.high) == (max(ranks) - 1, count - max(ranks))
    assert interval.coverage == pytest.approx(coverage(max(ranks)))


@pytest.mark.parametrize(
    ("count", "rank"), [(5, None), (6, 1), (9, 2), (20, 6), (50, 18), (100, 40)]
)
def test_ranks_of_the_usual_tables(count: int, rank: int | None) -> None:
    interval = median_interval([float(value) for value in range(1, count + 1)])
    assert (None if interval is None else interval.low) == rank


def test_interval_of_many_samples() -> None:
    interval = median_interval(np.arange(100_000, dtype=np.float64))
    assert interval.coverage == pytest.approx(0.95, abs=1e-3)
    assert interval.low == pytest.approx(50_000 - 1.96 * math.sqrt(100_000) / 2, abs=2)


def test_equal_samples_have_an_interval_without_width() -> None:
    interval = median_interval([4.0] * 10)
    assert (interval.low, interval.high) == (4.0, 4.0)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0])
def test_confidence_is_checked(confidence: float) -> None:
    with pytest.raises(ValueError, match="not between 0 and 1"):
        median_interval([1.0], confidence)


@pytest.mark.parametrize("function", [median, interquartile_range, median_interval])
def test_no_samples_have_no_statistics(function: object) -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        function([])  # type: ignore[operator]


@given(
    st.integers(1, 5).flatmap(
        lambda steps: st.lists(
            st.lists(st.floats(0, 1e9), min_size=steps, max_size=steps), min_size=1, max_size=9
        )
    )
)
def test_medians_of_steps(samples: list[list[float]]) -> None:
    expected = [median_of_the_standard_library(step) for step in zip(*samples, strict=True)]
    assert step_medians(samples) == pytest.approx(expected)


def test_short_rounds() -> None:
    assert step_medians([[1.0, 5.0], [3.0], []]).tolist() == [2.0, 5.0]


def test_nothing_measured_has_no_medians() -> None:
    assert step_medians([]).tolist() == []
    assert step_medians([[]]).tolist() == []


# Student's t


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.9, 0)])
def test_arguments_of_t_are_checked(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match=r"not between 0 and 1|degrees of freedom"):
        t_quantile(probability, degrees)


# Lines and widths


@given(st.floats(-10, 10), st.floats(-100, 100))
def test_points_of_a_line_give_the_line(gradient: float, intercept: float) -> None:
    x = [3.0, 5.0, 10.0, 50.0]
    line = line_fit(x, [gradient * value + intercept for value in x])
    assert line.gradient == pytest.approx(gradient, abs=1e-9)
    assert line.intercept == pytest.approx(intercept, abs=1e-9)


def test_least_squares() -> None:
    assert line_fit([0.0, 1.0, 2.0], [0.0, 0.0, 3.0]) == Line(1.5, -0.5)


def test_what_is_no_line() -> None:
    with pytest.raises(ValueError, match="two different x"):
        line_fit([1.0, 1.0], [2.0, 3.0])
    with pytest.raises(ValueError, match="as many y as x, got 1 and 2"):
        line_fit([1.0, 2.0], [2.0])


def test_relative_half_width() -> None:
    assert relative_half_width([float(value) for value in range(1, 7)]) == pytest.approx(2.5 / 3.5)
    assert relative_half_width([1.0] * 5) is None
    assert relative_half_width([0.0] * 10) is None
