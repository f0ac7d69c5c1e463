"""Functions of a host profile, and what changed from one to another."""

from __future__ import annotations

import pytest

from bt_bench.analysis.profile.host_calls import ChangeKind, host_changes, host_rows
from bt_bench.results import HandlerCost, HostFrame, HostProfile

FREE = HandlerCost(within_us=0, around_us=0)


def frame(name, self_us, *children, calls=1, scatter=0.1, file="a.py", line=3, vary=False):
    is_c = file is None
    return HostFrame(
        name=name,
        kind="c" if is_c else "python",
        file=file,
        line=None if is_c else line,
        calls=calls,
        calls_vary=vary,
        self_us=self_us,
        self_low_us=max(0.0, self_us - scatter),
        self_high_us=self_us + scatter,
        total_us=self_us + sum(child.total_us for child in children),
        children=list(children),
    )


def profile(*frames, plain_us=100.0):
    return HostProfile(
        plain_us=plain_us, repetitions=40, python_call=FREE, c_call=FREE, frames=list(frames)
    )


def changes(before, after, plain_us=100.0):
    found = host_changes(profile(*before, plain_us=plain_us), profile(*after, plain_us=plain_us))
    return [(change.row.name, change.kind, round(change.difference_us, 6)) for change in found]


def test_all_places_of_a_function_are_one_row():
    copies = frame("copy_", 2, calls=2, file=None), frame("copy_", 3, file=None)
    rows = host_rows(profile(frame("step", 1, copies[0], frame("gather", 20, copies[1]))))
    assert [(row.name, row.calls, row.self_us, row.share) for row in rows] == [
        ("gather", 1, 20, 0.2),
        ("copy_", 3, 5, 0.05),
        ("step", 1, 1, 0.01),
    ]
    assert (rows[1].self_low_us, rows[1].self_high_us) == pytest.approx((4.8, 5.2))


def test_functions_of_one_name_at_other_places_are_others():
    rows = host_rows(profile(frame("f", 2), frame("f", 3, file="b.py"), frame("f", 4, line=9)))
    assert [(row.file, row.line, row.self_us) for row in rows] == [
        ("a.py", 9, 4),
        ("b.py", 3, 3),
        ("a.py", 3, 2),
    ]


def test_a_step_of_no_time_has_no_shares():
    assert host_rows(profile(frame("f", 0.0), plain_us=0.0))[0].share == 0


def test_the_same_profile_has_not_changed():
    frames = [frame("step", 5, frame("len", 1, file=None))]
    assert changes(frames, frames) == []


def test_the_most_telling_change_comes_first():
    """A machine that has become slower makes functions longer, but calls no others."""
    before = [frame("a", 5), frame("b", 9), frame("gone", 2), frame("often", 4, calls=4)]
    after = [frame("a", 6), frame("b", 4), frame("new", 0.1), frame("often", 5, calls=5)]
    assert changes(before, after) == [
        ("gone", ChangeKind.GONE, -2),
        ("often", ChangeKind.TIME, 1),
        ("b", ChangeKind.TIME, -5),
        ("a", ChangeKind.TIME, 1),
        ("new", ChangeKind.NEW, 0.1),
    ]


def test_calls_that_vary_anyway_are_not_more_telling_than_time():
    before = [frame("a", 5), frame("often", 4, calls=4, vary=True)]
    after = [frame("a", 9), frame("often", 6, calls=5)]
    assert changes(before, after) == [("a", ChangeKind.TIME, 4), ("often", ChangeKind.TIME, 2)]


def test_lines_move_when_a_file_is_edited():
    assert changes([frame("f", 5, line=3)], [frame("f", 5, line=80)]) == []
    moved = changes([frame("f", 5)], [frame("f", 5, file="b.py")])
    assert {kind for _, kind, _ in moved} == {ChangeKind.NEW, ChangeKind.GONE}


def test_a_change_within_the_scatter_is_none():
    assert changes([frame("f", 5, scatter=1)], [frame("f", 6.9, scatter=1)]) == []
    assert changes([frame("f", 5, scatter=1)], [frame("f", 7.1, scatter=1)]) != []


@pytest.mark.parametrize(("plain_us", "changed"), [(100.0, False), (8.0, True)])
def test_a_small_change_counts_in_a_short_step(plain_us, changed):
    before, after = [frame("f", 5, scatter=0.01)], [frame("f", 5.25, scatter=0.01)]
    assert bool(changes(before, after, plain_us)) is changed


def test_more_calls_in_the_same_time_are_a_change():
    before, after = profile(frame("f", 5, calls=2)), profile(frame("f", 5, calls=3))
    (change,) = host_changes(before, after)
    assert change.kind is ChangeKind.CALLS
    assert change.more
    assert not host_changes(after, before)[0].more


def test_calls_that_vary_anyway_are_none():
    assert changes([frame("f", 5, calls=2, vary=True)], [frame("f", 5, calls=3)]) == []


def test_the_row_of_what_is_gone_is_as_it_was():
    (change,) = host_changes(profile(frame("f", 5, line=7)), profile())
    assert (change.row.line, change.after, change.more) == (7, None, False)
