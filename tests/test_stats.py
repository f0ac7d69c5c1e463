"""Statistics against definitions that are slow and obvious."""

from __future__ import annotations

import math
from itertools import product
from statistics import median as median_of_the_standard_library

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bt_bench.stats import (
    interquartile_range,
    median,
    median_interval,
    percentile,
    step_medians,
    typical,
    typical_difference,
)

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
    assert interval is not None
    assert (interval.low, interval.high) == (max(ranks) - 1, count - max(ranks))
    assert interval.coverage == pytest.approx(coverage(max(ranks)))


@pytest.mark.parametrize(
    ("count", "rank"), [(5, None), (6, 1), (9, 2), (20, 6), (50, 18), (100, 40)]
)
def test_ranks_of_the_usual_tables(count: int, rank: int | None) -> None:
    interval = median_interval([float(value) for value in range(1, count + 1)])
    assert (None if interval is None else interval.low) == rank


def test_interval_holds_the_median_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    intervals = [median_interval(generator.exponential(size=30)) for _ in range(2000)]
    hits = [i is not None and i.low <= math.log(2) <= i.high for i in intervals]
    assert np.mean(hits) == pytest.approx(0.957, abs=0.015)


def test_interval_of_many_samples() -> None:
    interval = median_interval(np.arange(100_000, dtype=np.float64))
    assert interval is not None
    assert interval.coverage == pytest.approx(0.95, abs=1e-3)
    assert interval.low == pytest.approx(50_000 - 1.96 * math.sqrt(100_000) / 2, abs=2)


def test_equal_samples_have_an_interval_without_width() -> None:
    interval = median_interval([4.0] * 10)
    assert interval is not None
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
    assert typical(samples) == pytest.approx(median_of_the_standard_library(expected))


def test_short_rounds() -> None:
    assert step_medians([[1.0, 5.0], [3.0], []]).tolist() == [2.0, 5.0]
    assert typical([[1.0, 5.0], [3.0]]) == 3.5


def test_nothing_measured_is_none() -> None:
    assert typical([]) is None
    assert typical([[]]) is None


def test_typical_difference_pairs_rounds_and_steps():
    base = [[10.0, 100.0], [20.0, 200.0], [90.0, 900.0]]
    other = [[9.0, 97.0], [19.0, 195.0], [89.0, 896.0]]
    # Per step the differences are 1, 1, 1 and 3, 5, 4; their medians 1 and 4.
    assert typical_difference(base, other) == 2.5
    assert typical_difference(other, base) == -2.5


def test_drift_cancels_in_differences_but_not_between_medians():
    base = [[10.0], [11.0], [50.0], [51.0]]
    other = [[9.0], [49.0], [10.0], [50.0]]
    assert typical(base) - typical(other) == 1.0
    assert typical_difference([[b] for (b,) in base], [[b - 1] for (b,) in base]) == 1.0


def test_samples_that_do_not_pair_have_no_typical_difference():
    assert typical_difference([[1.0]], [[1.0], [2.0]]) is None
    assert typical_difference([[1.0, 2.0]], [[1.0]]) is None
    assert typical_difference([], []) is None
