"""Two methods for one device time, and what is taken off each before they are compared."""

from __future__ import annotations

import pytest
from support.factories import make_calibration, make_case, make_launches

from bt_bench.analysis.crosscheck import (
    TOLERANCE_PERCENT,
    TOLERANCE_US,
    Crosscheck,
    Reading,
    crosschecks,
    disagreements,
)
from bt_bench.results.run.nouns import Cache, LaunchPath, Load, Method, Quantity, Series
from bt_bench.results.run.series import series_of

INTERCEPTS = {Method.EVENTS: 2.0, Method.PROFILER: 0.5, Method.GRAPH_SLOPE: 0.75}
BUSY_EVENT = series_of(Quantity.EVENT_US, load=Load.BUSY)
BUSY_SPAN = series_of(Quantity.SPAN_US, load=Load.BUSY)
COLD_EVENT = series_of(Quantity.EVENT_US, load=Load.BUSY, l2=Cache.COLD)
COLD_SPAN = series_of(Quantity.SPAN_US, load=Load.BUSY, l2=Cache.COLD)
SLOPE = series_of(Quantity.GPU_US, launch_path=LaunchPath.GRAPH, method=Method.GRAPH_SLOPE)
GPU = series_of(Quantity.GPU_US)


def _check(
    times: dict[Series, float], *launches: str, intercepts: dict[Method, float] | None = None
) -> tuple[Crosscheck, ...]:
    case = make_case(
        samples={series: [[value]] for series, value in times.items()},
        launches=make_launches(launches) if launches else None,
    )
    known = INTERCEPTS if intercepts is None else intercepts
    return crosschecks(case, make_calibration(intercepts_us=known))


def test_a_span_has_each_intercept_once() -> None:
    (check,) = _check({BUSY_EVENT: 12.0, BUSY_SPAN: 10.75}, "gather", "slots")
    assert (check.first.reported_us, check.second.reported_us) == (12.0, 10.75)
    assert check.first.corrected_us == pytest.approx(10.0)
    assert check.second.corrected_us == pytest.approx(10.25)
    assert check.difference_us == pytest.approx(-0.25)
    assert check.tolerance_us == pytest.approx(1.025)
    assert check.agrees


def test_hot_and_cold_are_checked_apart() -> None:
    times = {BUSY_EVENT: 12.0, BUSY_SPAN: 10.5, COLD_EVENT: 20.0, COLD_SPAN: 10.5}
    checks = _check(times, "gather")
    assert [check.agrees for check in checks] == [True, False]
    assert [check.first.series for check in disagreements(checks)] == [COLD_EVENT]


def test_busy_times_have_an_intercept_per_device_operation() -> None:
    (check,) = _check({SLOPE: 10.25, GPU: 9.5}, "gather", "slots", "apply")
    assert check.first.corrected_us == pytest.approx(10.25 - 3 * 0.75)
    assert check.second.corrected_us == pytest.approx(9.5 - 3 * 0.5)
    assert check.difference_us == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("first_us", "second_us", "agrees"),
    [
        (5.0, 5.0 + TOLERANCE_US, True),
        (5.0, 5.01 + TOLERANCE_US, False),
        (100.0, 100.0 - TOLERANCE_PERCENT, True),
        (100.0, 99.9 - TOLERANCE_PERCENT, False),
    ],
)
def test_tolerance(first_us: float, second_us: float, agrees: bool) -> None:
    check = Crosscheck(Reading(SLOPE, first_us, 0.0), Reading(GPU, second_us, 0.0))
    assert check.agrees is agrees


def test_a_slope_may_be_less_for_its_l2_is_warmer() -> None:
    intercepts = dict.fromkeys(INTERCEPTS, 0.0)
    for slope_us, gpu_us, agrees in [
        *[(3.6, 7.3, True), (7.3, 3.6, False), (7.3, 6.4, True)],
        *[(0.0, 7.3, False), (0.0, 0.9, True)],  # no kernel ran, or an empty one
    ]:
        (check,) = _check({SLOPE: slope_us, GPU: gpu_us}, "gather", intercepts=intercepts)
        assert check.agrees is agrees, slope_us
    (check,) = _check({COLD_EVENT: 3.6, COLD_SPAN: 7.3}, "gather", intercepts=intercepts)
    assert check.agrees is False


def test_without_an_intercept_it_cannot_be_told() -> None:
    times = {BUSY_EVENT: 99.0, BUSY_SPAN: 1.0}
    (check,) = _check(times, "gather", intercepts={Method.EVENTS: 2.0})
    assert check.second.corrected_us is None
    assert (check.difference_us, check.tolerance_us, check.agrees) == (None, None, None)
    assert disagreements((check,)) == ()


def test_what_methods_add_to_copies_is_not_known() -> None:
    times = {BUSY_EVENT: 99.0, BUSY_SPAN: 1.0, SLOPE: 99.0, GPU: 1.0}
    checks = _check(times, "gather", "copy:HtoD")
    assert len(checks) == 2
    assert {check.agrees for check in checks} == {None}


def test_without_a_count_of_launches_busy_times_cannot_be_told() -> None:
    (check,) = _check({SLOPE: 99.0, GPU: 1.0})
    assert check.agrees is None


def test_one_method_alone_is_no_check() -> None:
    assert _check({BUSY_EVENT: 12.0, GPU: 9.5}, "gather") == ()


def test_a_step_that_launches_nothing_is_not_checked() -> None:
    case = make_case(samples={BUSY_EVENT: [[9.0]], BUSY_SPAN: [[0.0]]}, launches=make_launches([]))
    assert crosschecks(case, make_calibration(intercepts_us=INTERCEPTS)) == ()
