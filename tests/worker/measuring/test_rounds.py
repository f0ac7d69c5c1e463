"""Orders of arms are balanced: no arm is favoured by its place, nor by who ran before it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from bt_bench.worker.measuring.rounds import balanced_orders, rounds_of_cycle


@pytest.mark.parametrize("count", range(1, 13))
def test_each_arm_is_at_each_place_and_after_each_other_equally_often(count):
    orders = balanced_orders(count)
    rounds = [each for order in orders for each in (order, order[::-1])]
    assert len(rounds) == rounds_of_cycle(count)
    assert all(sorted(order) == list(range(count)) for order in rounds)
    places = Counter((place, arm) for order in rounds for place, arm in enumerate(order))
    assert len(places) == count**2
    assert len(set(places.values())) == 1
    after = Counter(pair for order in rounds for pair in pairwise(order))
    assert len(after) == count * (count - 1)
    assert len(set(after.values())) <= 1
