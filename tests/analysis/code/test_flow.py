"""Orders of blocks, and which branch decides what is run."""

from __future__ import annotations

from bt_bench.analysis.code.flow import flow_of


def deciders(successors):
    return [set(each) for each in flow_of(successors).deciders]


def test_what_is_run_either_way_is_decided_by_nobody():
    # 0 branches to 1 or 2, both go on to 3.
    flow = flow_of([[1, 2], [3], [3], []])
    assert flow.order[0] == 0
    assert flow.order[-1] == 3
    assert set(flow.before[3]) == {1, 2}
    assert deciders([[1, 2], [3], [3], []]) == [set(), {0}, {0}, set()]


def test_a_way_around():
    # 0 goes to 2 at once, or through 1.
    assert deciders([[1, 2], [2], []]) == [set(), {0}, set()]


def test_loops_are_passed_once_and_decide_nothing_behind_them():
    # 1 is the head of a loop with the body 2; 3 is behind it.
    successors = [[1], [2, 3], [1], []]
    flow = flow_of(successors)
    assert flow.before[1] == (0,)
    assert deciders(successors) == [set(), set(), {1}, set()]
    # A loop that is looked at at its end.
    assert deciders([[1], [1, 2], []]) == [set(), set(), set()]


def test_an_early_end_decides_all_that_follows():
    assert deciders([[1, 2], [], [3], []]) == [set(), {0}, {0}, {0}]


def test_endless_loops_and_what_cannot_be_reached():
    flow = flow_of([[1], [1], [0]])
    assert flow.order == (0, 1)
    assert flow_of([[1, 2], [2], [1]]).order[0] == 0


def test_long_chains_do_not_run_out_of_stack():
    number = 5000
    flow = flow_of([[index + 1] for index in range(number)] + [[]])
    assert flow.order == tuple(range(number + 1))
