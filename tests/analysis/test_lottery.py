"""The lottery of GPUs, where clocks are coarse."""

from __future__ import annotations

import pytest

from bt_bench.analysis.lottery import apart


@pytest.mark.parametrize(
    "values", [[1.024], [1.024, 1.024], [1.024, 2.048], [0.5, 0.9], [0.0, 1.0], []]
)
def test_times_of_about_a_tick_do_not_differ(values):
    assert apart(values, tick_us=1.024) == 0
