"""Savings of one series of two cases, and labels of results."""

from __future__ import annotations

import pytest
from support.factories import make_case, make_measurement, make_result, make_rounds

from bt_bench.analysis.run.savings import SeriesPair, baseline_index, pair_series, unique_labels
from bt_bench.errors import UsageError
from bt_bench.results.case import CaseResult
from bt_bench.results.nouns import Quantity, Series
from bt_bench.results.series import series_of

EVENT = series_of(Quantity.EVENT_US)


def timed(*values: float) -> CaseResult:
    return make_case(samples={EVENT: [[value] for value in values]})


def pair(base: CaseResult, other: CaseResult, *, one_run: bool = False) -> SeriesPair:
    return pair_series(base, other, EVENT, None, one_run=one_run)


def test_medians_and_savings() -> None:
    found = pair(timed(60.0, 50.0, 90.0), timed(20.0, 15.0))
    assert (found.base_us, found.other_us, found.savings_us) == (60.0, 17.5, 42.5)
    assert found.savings_percent == pytest.approx(70.833, abs=1e-3)


def test_a_slower_side_has_negative_savings() -> None:
    found = pair(timed(50.0), timed(75.0))
    assert (found.savings_us, found.savings_percent) == (-25.0, -50.0)


def test_a_quantity_of_one_side_has_no_savings() -> None:
    other = make_case(samples={Quantity.STEP_US: [[9.0]]})
    found = pair(timed(60.0), other)
    assert (found.base_us, found.other_us, found.savings_us) == (60.0, None, None)
    assert found.savings_percent is None


def test_savings_of_nothing_have_no_percentage() -> None:
    found = pair(timed(0.0), timed(2.0))
    assert (found.savings_us, found.savings_percent) == (-2.0, None)


def test_windows_are_compared_by_the_median_of_their_steps() -> None:
    samples = {EVENT: [[1.0, 10.0, 3.0], [3.0, 30.0, 5.0]]}
    case = make_case(samples=samples, num_steps=3)
    assert pair(case, case).base_us == 4.0


def test_sides_of_one_run_are_paired_by_round() -> None:
    left, right = timed(10.0, 11.0, 50.0, 51.0), timed(9.0, 10.0, 49.0, 50.0)
    paired = pair(left, right, one_run=True)
    assert (paired.paired, paired.savings_us) == (True, 1.0)
    apart = pair(left, right, one_run=False)
    assert (apart.paired, apart.savings_us) == (False, 1.0)


def test_rounds_that_one_side_discarded_do_not_pair() -> None:
    def measured(values: list[list[float]], rounds: list[int]) -> CaseResult:
        return make_case().model_copy(
            update={"measurements": [make_measurement(EVENT, values, rounds)]}
        )

    left = measured([[10.0], [50.0], [12.0]], [0, 1, 2])
    right = measured([[9.0], [11.0]], [0, 2])
    found = pair(left, right, one_run=True)
    assert (found.base_us, found.other_us, found.savings_us) == (12.0, 10.0, 1.0)
    assert found.paired


def side(values: list[float], series: Series) -> CaseResult:
    samples = {series: [[value] for value in values]}
    return make_case(samples=samples, rounds=make_rounds(len(values), instances=3))


def test_savings_are_resolved_or_not() -> None:
    series = series_of(Quantity.STEP_US)
    base = side([50.0, 50.5, 51.0, 50.0, 50.5, 51.0] * 2, series)
    same = side([50.1, 50.5, 50.9, 50.1, 50.5, 50.9] * 2, series)
    fast = side([30.1, 30.5, 30.9, 30.1, 30.5, 30.9] * 2, series)
    assert pair_series(base, same, series, None, one_run=True).resolved is False
    found = pair_series(base, fast, series, None, one_run=True)
    assert found.resolved is True
    assert found.savings_us == pytest.approx(20.0)
    elsewhere = pair_series(base, fast, series, None, one_run=False)
    assert (elsewhere.resolution, elsewhere.resolved) == (None, None)


def test_the_base_is_the_first_where_no_variant_is_named_baseline() -> None:
    assert baseline_index([make_result("b"), make_result("a")]) == 0
    assert baseline_index([make_result("b"), make_result("baseline")]) == 1


def test_labels() -> None:
    results = [
        make_result("fused", run_id="monday"),
        make_result("fused", run_id="tuesday"),
        make_result("fused", run_id="tuesday"),
        make_result("baseline"),
    ]
    assert unique_labels(results) == [
        "fused (monday)",
        "fused (tuesday)",
        "fused (tuesday) #2",
        "baseline",
    ]
    assert unique_labels(results, ["x", "x", "x #2", "y"]) == ["x", "x #2", "x #2 #2", "y"]
    with pytest.raises(UsageError, match="got 1 labels for 4 results"):
        unique_labels(results, ["x"])
