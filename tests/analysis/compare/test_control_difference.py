"""How much an unchanged copy differs, as two arms of a run are compared."""

from __future__ import annotations

import pytest
from support.factories import make_measurement

from bt_bench.analysis.compare.estimating import control_difference
from bt_bench.results.run.case import Measurement
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.series import series_of


def taken(
    *rows: list[float], rounds: list[int] | None = None, name: str = "host_us"
) -> Measurement:
    series = series_of(Quantity(name))
    found = make_measurement(series, [list(row) for row in rows])
    return found if rounds is None else found.model_copy(update={"rounds": rounds})


def control_difference_us(original: Measurement, copy: Measurement) -> float | None:
    """The difference in µs; its share is that of the original's typical time."""
    found = control_difference(original, copy)
    return None if found is None else found.us


def test_it_is_the_median_ratio_of_the_base() -> None:
    # Ratios 1.1, 1.1 and 1.5; the median of the base is 20.
    found = control_difference(taken([10], [20], [30]), taken([11], [22], [45]))
    assert (found.us, found.share) == pytest.approx((20 * 0.1, 0.1))


def test_drift_cancels() -> None:
    original, copy = taken([10], [20], [40]), taken([10], [20], [40])
    assert control_difference_us(original, copy) == 0


def test_only_rounds_of_both_count() -> None:
    original = taken([10], [20], rounds=[0, 1])
    assert control_difference_us(original, taken([22], [99], rounds=[1, 2])) == pytest.approx(2)
    assert control_difference_us(original, taken([22], rounds=[7])) is None


def test_rounds_that_are_short_do_not_count() -> None:
    original = taken([10, 20], [10])
    assert control_difference_us(original, taken([11, 22], [55, 66])) == pytest.approx(15 * 0.1)
    assert control_difference_us(original, taken([11])) is None
    assert control_difference_us(taken([], [10]), taken([], [11])) == pytest.approx(1)


def test_rounds_of_several_lengths_have_no_difference() -> None:
    assert control_difference_us(taken([10, 20], [10]), taken([11, 22], [11])) is None


def test_of_a_window_the_median_over_its_steps() -> None:
    difference = control_difference_us(taken([10, 20, 30]), taken([11, 24, 60]))
    assert difference == pytest.approx(20 * 0.2)


def test_steps_in_which_nothing_ever_ran_do_not_count() -> None:
    assert control_difference_us(taken([0, 20]), taken([0, 22])) == pytest.approx(2)
    assert control_difference_us(taken([0], [0]), taken([0], [0])) == 0


def test_a_time_of_zero_has_no_ratio() -> None:
    assert control_difference_us(taken([10], [0]), taken([10], [5])) is None


def test_gaps_may_be_zero() -> None:
    """`compare` adds the floor to both sides, so that there is a ratio."""
    difference = control_difference_us(taken([0.0], name="gap_us"), taken([0.2], name="gap_us"))
    assert difference == pytest.approx(0.2)
