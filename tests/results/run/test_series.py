"""Names of series, and figures of cases and calibrations."""

from __future__ import annotations

from itertools import permutations

import pytest
from support.factories import make_calibration, make_case, make_measurement

from bt_bench.analysis.figures import figure_us, method_line, step_medians_of, typical_us
from bt_bench.results.run.calibration import DeviceLine
from bt_bench.results.run.nouns import Cache, LaunchPath, Load, Method, Quantity
from bt_bench.results.run.series import place_of, series_of

STEP = series_of(Quantity.STEP_US)


def test_a_quantity_without_traits_is_refused() -> None:
    with pytest.raises(TypeError, match="quantity 'other_us' has no traits"):
        Quantity.__new_member__(Quantity, "other_us")


def test_series_are_sorted_by_quantity_then_by_condition() -> None:
    ordered = [
        series_of(Quantity.HOST_US),
        series_of(Quantity.HOST_US, load=Load.BUSY),
        series_of(Quantity.HOST_US, load=Load.BUSY, l2=Cache.COLD),
        series_of(Quantity.HOST_US, launch_path=LaunchPath.COMPILED),
        series_of(Quantity.EVENT_US),
    ]
    for shuffled in permutations(ordered):
        assert sorted(shuffled, key=place_of) == ordered


def test_figures_of_a_case() -> None:
    case = make_case(samples={STEP: [[1.0, 10.0], [3.0, 30.0], [2.0, 20.0]]}, num_steps=2)
    medians = step_medians_of(case, STEP)
    assert medians.tolist() == [2.0, 20.0]
    assert typical_us(case, STEP) == 11.0
    assert typical_us(case, series_of(Quantity.HOST_US)) is None


def test_a_series_without_samples_has_no_figures() -> None:
    empty = make_case().model_copy(update={"measurements": [make_measurement(STEP, [])]})
    assert step_medians_of(empty, STEP) is None
    assert typical_us(empty, STEP) is None


def test_figures_of_a_calibration() -> None:
    calibration = make_calibration({"null_step": [1.0, 9.0, 2.0]})
    assert figure_us(calibration, "null_step") == 2.0
    assert figure_us(calibration, "null_host") is None
    assert figure_us(None, "null_step") is None


def test_the_line_of_a_method_goes_through_the_medians() -> None:
    line = DeviceLine(
        method=Method.PROFILER,
        set_us=[3.0, 5.0, 50.0],
        reported_us=[[3.5, 3.6, 99.0], [], [50.6, 50.6]],
    )
    calibration = make_calibration().model_copy(update={"lines": [line]})
    found = method_line(calibration, Method.PROFILER)
    assert (found.gradient, found.intercept) == (pytest.approx(1.0), pytest.approx(0.6))
    assert method_line(calibration, Method.EVENTS) is None
    assert method_line(None, Method.EVENTS) is None


def test_one_length_is_no_line() -> None:
    line = DeviceLine(method=Method.PROFILER, set_us=[3.0, 3.0], reported_us=[[3.5], [3.6]])
    calibration = make_calibration().model_copy(update={"lines": [line]})
    assert method_line(calibration, Method.PROFILER) is None
