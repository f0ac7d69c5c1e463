"""What changed between two steps: which rows are the same, and which of them count as changed."""

from __future__ import annotations

from dataclasses import fields

import pytest

from bt_bench.analysis.profile.rows import Lane, RowKind, TimelineRow
from bt_bench.analysis.profile.step_changes import StepChangeKind, step_changes
from bt_bench.analysis.profile.timeline import Explained

NEW, GONE, LONGER, SHORTER = StepChangeKind
LAUNCH = "cuLaunchKernelEx"
SCATTER = 0.1


def code(us, scatter=SCATTER):
    return [(Lane.HOST, RowKind.CODE, "host code", us, scatter)]


def launch(operation, us=2.0, on_device=3.0, call=LAUNCH, scatter=SCATTER):
    return [
        (Lane.HOST, RowKind.LAUNCH, call, us, scatter),
        (Lane.DEVICE, RowKind.OPERATION, operation, on_device, scatter),
    ]


def call(name, us):
    return [(Lane.HOST, RowKind.CALL, name, us, SCATTER)]


def wait(us):
    return [(Lane.HOST, RowKind.WAIT, "wait for the device", us, SCATTER)]


def explained(*parts, first_us=0.0):
    """A step of rows one after another, the first of which begins at a time in µs."""
    rows, at = [], first_us
    for lane, what, name, us, scatter in (row for part in parts for row in part):
        launched_by = len(rows) - 1 if what is RowKind.OPERATION else None
        spread = us - scatter, us + scatter
        rows.append(TimelineRow(lane, what, name, at, at + us, *spread, launched_by=launched_by))
        at += us
    others = dict.fromkeys((field.name for field in fields(Explained)), None)
    return Explained(**others | {"rows": tuple(rows)})


def changes(before, after):
    found = step_changes(explained(*before), explained(*after))
    return [(c.kind, c.row.name, c.next_to, round(c.difference_us, 6)) for c in found]


STEP = (code(5), launch("apply"), code(4), launch("gather"), code(3), launch("slots"), wait(8))


def replaced(place, *parts):
    """The step with one part replaced."""
    return (*STEP[:place], *parts, *STEP[place + 1 :])


def test_the_same_step_has_not_changed():
    assert changes(STEP, STEP) == []


def test_a_step_that_only_starts_later_has_not_changed():
    assert step_changes(explained(*STEP), explained(*STEP, first_us=50.0)) == []


def test_an_extra_copy_is_one_call_and_one_operation():
    copy = launch("copy to device", us=4, on_device=1.5, call="cuMemcpyHtoDAsync")
    # The code before `gather` is what it was, but in two parts.
    after = replaced(2, code(1), copy, code(3))
    assert changes(STEP, after) == [
        (NEW, "copy to device", None, 1.5),
        (NEW, "cuMemcpyHtoDAsync", "copy to device", 4),
    ]
    assert [kind for kind, *_ in changes(after, STEP)] == [GONE, GONE]


def test_code_around_an_extra_call_is_compared_as_a_whole():
    after = replaced(2, code(3), call("cuEventRecord", 1), code(4))
    assert changes(STEP, after) == [
        (LONGER, "host code", "gather", 3),
        (NEW, "cuEventRecord", None, 1),
    ]


@pytest.mark.parametrize("place", [1, 3, 5, 6])
def test_one_more_launch_of_the_same_call_is_the_one_of_its_kernel(place):
    """The launches before and after it keep their kernels, wherever the longer run of them is."""
    after = (*STEP[:place], launch("clear", us=2.5), *STEP[place:])
    assert changes(STEP, after) == [
        (NEW, "clear", None, 3),
        (NEW, LAUNCH, "clear", 2.5),
    ]


@pytest.mark.parametrize("us", [1.5, 2.5])
def test_parts_of_code_scatter_together(us):
    """Two parts that scatter by 1 µs together, in place of one of 4 µs."""
    parts = code(us, scatter=0.5), call("cuEventRecord", 9), code(us, scatter=0.5)
    assert changes(STEP, replaced(2, *parts)) == [(NEW, "cuEventRecord", None, 9)]


@pytest.mark.parametrize("us", [2, 40])
def test_a_longer_kernel_is_named_before_the_wait_for_it(us):
    """As by a spill or a dependent load; the wait is longer by as much and a little more."""
    before = STEP
    after = (*replaced(5, launch("slots", on_device=3 + us))[:-1], wait(8.2 + us))
    assert changes(before, after) == [
        (LONGER, "slots", None, us),
        (LONGER, "wait for the device", None, us + 0.2),
    ]
    assert [kind for kind, *_ in changes(after, before)] == [SHORTER, SHORTER]


def test_a_slower_launch_is_told_from_the_others():
    after = replaced(3, launch("gather", us=6))
    assert changes(STEP, after) == [(LONGER, LAUNCH, "gather", 4)]


def test_host_code_is_told_by_what_comes_after_it():
    assert changes(STEP, replaced(4, code(10))) == [(LONGER, "host code", "slots", 7)]
    assert changes(STEP, replaced(6, code(2), wait(8))) == [(NEW, "host code", "the return", 2)]
    assert changes(STEP, STEP[1:]) == [(GONE, "host code", "apply", -5)]


def test_a_little_host_code_more_is_not_news():
    assert changes(STEP, replaced(6, code(0.2, scatter=0.01), wait(8))) == []


def test_an_exchanged_kernel_is_not_an_exchanged_launch():
    after = replaced(3, launch("gather_v2", us=6))
    assert changes(STEP, after) == [
        (GONE, "gather", None, -3),
        (NEW, "gather_v2", None, 3),
        (LONGER, LAUNCH, "gather_v2", 4),
    ]


def test_a_step_with_entirely_different_launches_shares_only_the_wait():
    before = (code(5), launch("apply"), code(4), launch("gather"), wait(8))
    after = (code(20), launch("graph", us=7, on_device=9, call="cuGraphLaunch"), wait(8))
    assert changes(before, after) == [
        (NEW, "graph", None, 9),
        (GONE, "apply", None, -3),
        (GONE, "gather", None, -3),
        (LONGER, "host code", "the return", 11),
        (NEW, "cuGraphLaunch", "graph", 7),
        (GONE, LAUNCH, "apply", -2),
        (GONE, LAUNCH, "gather", -2),
    ]


def test_a_step_without_rows_has_only_news():
    assert {kind for kind, *_ in changes((), STEP)} == {NEW}
    assert changes((), ()) == []


@pytest.mark.parametrize(
    ("before_us", "after_us", "scatter", "changed"),
    [
        (3.0, 3.31, 0.1, True),
        (3.0, 3.29, 0.1, False),  # below 0.3 µs
        (3.0, 3.9, 0.5, False),  # the spreads overlap
        (3.0, 4.1, 0.5, True),
        (100.0, 104.0, 0.1, False),  # below 5 %
        (100.0, 106.0, 0.1, True),
        (106.0, 100.0, 0.1, True),
    ],
)
def test_what_counts_as_a_change(before_us, after_us, scatter, changed):
    before, after = (
        replaced(3, launch("gather", on_device=us, scatter=scatter)) for us in (before_us, after_us)
    )
    expected = LONGER if after_us > before_us else SHORTER
    assert [kind for kind, *_ in changes(before, after)] == [expected] * changed


def test_more_of_a_row_is_new_or_longer():
    copy = launch("copy", call="cuMemcpyHtoDAsync")
    after = replaced(2, code(1), copy, code(3))
    assert [c.more for c in step_changes(explained(*STEP), explained(*after))] == [True, True]
    assert [c.more for c in step_changes(explained(*after), explained(*STEP))] == [False, False]
