"""Orders of arms are balanced: no arm is favoured by its place, nor by who ran before it."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest

from bt_bench.worker.measuring.rounds import ReplayWindow, Turns, balanced_orders, rounds_of_cycle


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


def window_of_three():
    """A window of three instances of three arms."""
    instances = [[SimpleNamespace(name=name) for name in "abc"] for _ in range(3)]
    return ReplayWindow("case", instances, [], operation=None)


@pytest.mark.parametrize(
    ("taken", "instances"), [(None, [0, 0, 1, 1, 2, 2, 0, 0]), ([2, 1], [2, 2, 1, 1, 2, 2, 1, 1])]
)
def test_each_pair_of_rounds_takes_the_next_instance(taken, instances):
    window = window_of_three()
    turns = Turns(window, random.Random(0), taken)
    rounds = [turn for _ in range(4) for turn in turns.next_pair()]
    assert [turn.instance for turn in rounds] == instances
    for turn in rounds:
        assert set(map(id, turn.arms)) == set(map(id, window.instances[turn.instance]))
    assert_in_pairs(rounds)


def test_rounds_alone_take_the_next_instance_each():
    turns = Turns(window_of_three(), random.Random(0))
    rounds = [turns.next_round() for _ in range(8)]
    assert [turn.instance for turn in rounds] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert_in_pairs(rounds)


def assert_in_pairs(rounds):
    names = [[arm.name for arm in turn.arms] for turn in rounds]
    assert all(names[place + 1] == names[place][::-1] for place in range(0, len(names), 2))
    assert len({tuple(order) for order in names[:6]}) == 6
