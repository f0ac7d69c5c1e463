"""Every formula against scipy's, far tails included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from bt_bench.analysis.statistics.estimates import (
    LARGEST_LOG,
    Estimate,
    geometric_mean,
    ratio_of,
    trimmed_estimate,
    wilson_interval,
)
from bt_bench.analysis.statistics.student import t_quantile, t_tail

VALUES = st.lists(st.integers(-1000, 1000).map(lambda n: n / 8), min_size=3, max_size=40)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 11, 19, 31, 100, 999])
@pytest.mark.parametrize("value", [0.0, 1e-9, 0.01, 0.7, 1.0, 2.5, 5.0, 12.0, 40.0, 1e3, 1e6])
def test_tails_of_t_far_out(value: float, degrees: int) -> None:
    expected = scipy_stats.t.sf(value, degrees)
    assert t_tail(value, degrees) == pytest.approx(expected, rel=1e-9)
    assert t_tail(-value, degrees) == pytest.approx(1 - expected, rel=1e-9)


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 7, 10, 19, 30, 200, 100_000])
@pytest.mark.parametrize("probability", [0.01, 0.5, 0.9, 0.975, 0.9995, 0.99995])
def test_quantile_and_tail_of_t_are_inverse(probability: float, degrees: int) -> None:
    quantile = t_quantile(probability, degrees)
    assert quantile == pytest.approx(scipy_stats.t.ppf(probability, degrees))
    assert t_tail(quantile, degrees) == pytest.approx(1 - probability, rel=1e-6)
    assert t_quantile(1 - probability, degrees) == pytest.approx(-quantile)


@given(VALUES, st.floats(-200, 200))
def test_without_trimming_it_is_the_t_test_of_the_mean(values: list[float], bound: float) -> None:
    estimate = trimmed_estimate(values, 0.0)
    assert estimate.observations == len(values)
    if len(set(values)) == 1:
        return
    for alternative, tail in (
        ("greater", estimate.tail_above(bound)),
        ("less", estimate.tail_below(bound)),
    ):
        expected = scipy_stats.ttest_1samp(values, bound, alternative=alternative)
        assert tail == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    expected_interval = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.98)
    interval = estimate.interval(0.98)
    assert (interval.low, interval.high) == pytest.approx(tuple(expected_interval), rel=1e-6)


@given(VALUES, st.sampled_from([0.0, 0.1, 0.2, 0.25]))
def test_trimmed_mean_is_that_of_yuens_test(values: list[float], share: float) -> None:
    estimate = trimmed_estimate(values, share)
    if len(values) - 2 * int(share * len(values)) < 3:
        assert estimate is None
        return
    assert estimate.location == pytest.approx(scipy_stats.trim_mean(values, share), abs=1e-9)
    if estimate.error < 1e-9:
        return
    # Against a second sample without any variance, Yuen's test for two samples is that for one.
    expected = scipy_stats.ttest_ind(values, [0.0] * 10, equal_var=False, trim=share)
    assert estimate.location / estimate.error == pytest.approx(expected.statistic, rel=1e-6)
    assert estimate.degrees == pytest.approx(expected.df)


def test_far_values_do_not_move_the_trimmed_mean() -> None:
    values = np.arange(20.0)
    far = values.copy()
    far[-1] = 1e9
    assert trimmed_estimate(values) == trimmed_estimate(far)
    assert list(values) == list(np.arange(20.0))  # what is passed in is not touched


def test_trimming_half_leaves_nothing() -> None:
    with pytest.raises(ValueError, match=r"share is 0\.5; expected at least 0 and less than 0\.5"):
        trimmed_estimate([1.0, 2.0, 3.0], 0.5)


@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_trimmed_interval_covers_as_often_as_it_says(confidence: float) -> None:
    generator = np.random.default_rng(0)
    draws = 4000
    covered = 0
    for sample in generator.normal(size=(draws, 12)):
        estimate = trimmed_estimate(sample)
        interval = estimate.interval(confidence)
        covered += interval.low <= 0 <= interval.high
    assert covered / draws == pytest.approx(confidence, abs=0.015)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0]])
def test_below_three_values_there_is_no_estimate(values: list[float]) -> None:
    assert trimmed_estimate(values) is None


def test_an_estimate_without_error_is_certain() -> None:
    estimate = Estimate(1.0, 0.0, 5, 6)
    bounds = (0.5, 1.0, 2.0)
    assert [estimate.tail_above(bound) for bound in bounds] == [0.0, 1.0, 1.0]
    assert [estimate.tail_below(bound) for bound in bounds] == [1.0, 1.0, 0.0]


@given(st.integers(0, 300), st.integers(1, 300), st.sampled_from([0.9, 0.95, 0.99]))
def test_wilson(successes: int, trials: int, confidence: float) -> None:
    if successes > trials:
        with pytest.raises(ValueError, match="expected at least one trial, and 0 to all"):
            wilson_interval(successes, trials, confidence)
        return
    expected = scipy_stats.binomtest(successes, trials).proportion_ci(confidence, "wilson")
    interval = wilson_interval(successes, trials, confidence)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_of_no_trials() -> None:
    with pytest.raises(ValueError, match="0 successes of 0 trials"):
        wilson_interval(0, 0)


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=30))
def test_geometric_mean(ratios: list[float]) -> None:
    mean = geometric_mean(ratios, 0.9)
    assert mean.ratio == pytest.approx(scipy_stats.gmean(ratios))
    logs = np.log(ratios)
    assert mean.interval is not None
    if logs.std() < 1e-9:
        return
    expected = scipy_stats.ttest_1samp(logs, 0).confidence_interval(0.9)
    found = (math.log(mean.interval.low), math.log(mean.interval.high))
    assert found == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-9)


def test_geometric_mean_of_one_has_no_interval() -> None:
    assert geometric_mean([1.25]).ratio == pytest.approx(1.25)
    assert geometric_mean([1.25]).interval is None


@pytest.mark.parametrize("ratios", [[], [1.0, 0.0], [-1.0], [1.0, math.nan], [1.0, math.inf]])
def test_geometric_mean_needs_positive_ratios(ratios: list[float]) -> None:
    with pytest.raises(ValueError, match="expected at least one ratio"):
        geometric_mean(ratios)


@pytest.mark.parametrize(
    ("location", "error"),
    [(math.nan, 0.1), (math.inf, 0.1), (0.1, math.nan), (0.1, math.inf), (-math.inf, 0.0)],
)
def test_an_estimate_that_is_not_finite_shows_nothing(location: float, error: float) -> None:
    estimate = Estimate(location, error, 7, 8)
    assert not estimate.is_finite
    assert estimate.tail_above(-1.0) == estimate.tail_below(1.0) == 1.0
    assert Estimate(0.5, 0.1, 7, 8).tail_above(math.nan) == 1.0


def test_ratios_beyond_what_a_number_holds() -> None:
    assert ratio_of(1e9) == ratio_of(LARGEST_LOG) < math.inf
    mean = geometric_mean([1e300, 1e-300])
    assert (mean.ratio, mean.interval.low) == (pytest.approx(1.0), 0.0)
    assert mean.interval.high == ratio_of(LARGEST_LOG)
