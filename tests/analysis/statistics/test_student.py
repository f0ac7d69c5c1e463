"""Critical values of Student's t, against another implementation."""

from __future__ import annotations

import pytest
from scipy import stats as scipy_stats

from bt_bench.analysis.deciding import Contest, Correction, decide
from bt_bench.analysis.statistics.estimates import Estimate
from bt_bench.analysis.statistics.student import LEAST_BY_QUANTILE, t_critical, t_quantile
from bt_bench.analysis.verdicts import Margin


@pytest.mark.parametrize("degrees", [1, 2, 7, 31])
@pytest.mark.parametrize("level", [0.5, 0.01, 1e-5, LEAST_BY_QUANTILE, 9e-7, 1e-12, 1e-15])
def test_critical_values(level: float, degrees: int) -> None:
    assert t_critical(level, degrees) == pytest.approx(
        scipy_stats.t.isf(level, degrees), rel=1e-6, abs=1e-9
    )


def test_families_of_equal_size_share_their_quantiles() -> None:
    """With Holm's correction, each of thousands of tests has a level of its own."""
    contests = [Contest(Estimate(-1.0, 0.01, 7, 8), Margin(0.02, 0.0))] * 1500
    t_quantile.cache_clear()
    t_critical.cache_clear()
    decide(contests, Correction.HOLM, 0.01)
    computed = t_quantile.cache_info().misses
    assert computed >= len(contests)
    decide(contests, Correction.HOLM, 0.01)
    assert t_quantile.cache_info().misses == computed


def test_bounds_have_a_level_each() -> None:
    low, high = Estimate(1.0, 0.1, 7, 8).bounds(0.001, 0.05)
    assert low == pytest.approx(1 - 0.1 * scipy_stats.t.isf(0.001, 7))
    assert high == pytest.approx(1 + 0.1 * scipy_stats.t.isf(0.05, 7))
