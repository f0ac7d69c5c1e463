"""A logarithmic axis of speed-ups."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bt_bench.report.axis import SpeedUp, axis_of


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1.0), (0.99, 1.01), (0.5, 1.2), (1.1, 8.0), (0.01, 0.9), (0.5, 9e5)]
)
def test_all_figures_and_one_are_on_it(low, high):
    axis = axis_of([SpeedUp(low, high, high)])
    place = axis.place(SpeedUp(low, high, high))
    assert 0 <= place.low <= place.point <= place.high <= 1
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 7
    assert all(tick.at + 0.12 < after.at for tick, after in pairwise(ticks))  # apart on a phone
    assert [tick.text for tick in ticks if tick.strong] == ["1 ×"]


def test_equal_factors_are_equally_far_apart():
    axis = axis_of([SpeedUp(0.25, 1, 4)])
    assert axis.at(2) - axis.at(1) == pytest.approx(axis.at(1) - axis.at(0.5))


def test_a_value_beyond_its_ends_is_shown_at_them():
    axis = axis_of([SpeedUp(0.5, 1, 2)])
    assert (axis.at(1e-9), axis.at(1e9)) == (0, 1)


def test_a_change_of_a_percent_is_seen():
    axis = axis_of([SpeedUp(0.99, 1, 1.01)])
    assert axis.at(1.01) - axis.at(0.99) > 0.1
    assert [tick.text for tick in axis.ticks()] == ["0.95 ×", "1 ×", "1.05 ×", "1.1 ×"]
