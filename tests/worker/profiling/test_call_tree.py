"""Call trees from events that are written down: times, what is taken off, names, and files."""

from __future__ import annotations

import functools
import gc
import math
import time
from pathlib import Path

import pytest

from bt_bench.results import HandlerCost
from bt_bench.worker.profiling.call_tree import CallTree, builtin_name, relative_file

FREE = HandlerCost(within_us=0, around_us=0)


def outer():
    pass


def inner():
    pass


OUTER, INNER = outer.__code__, inner.__code__
US = 1000


def step(inner_us, builtins=1, builtin_us=4):
    """Events of `outer`, which calls `inner`, and builtins at the instruction 8."""
    events = [("call", OUTER, 0, 0), ("call", INNER, 0, 10 * US)]
    now = 10 * US + inner_us * US
    events.append(("return", INNER, 2, now))
    for _ in range(builtins):
        events += [("c_call", OUTER, 8, now), ("c_return", OUTER, 8, now + builtin_us * US)]
        now += builtin_us * US
    return [*events, ("return", OUTER, 2, now + 20 * US)]


def frames_of(repetitions, python=FREE, c=FREE):
    tree = CallTree()
    taken = [tree.timed(events) for events in repetitions]
    (root,) = tree.frames(taken, python, c)
    return root, {frame.kind: frame for frame in root.children}


def test_times_are_medians_with_a_spread():
    root, below = frames_of([step(inner_us) for inner_us in (1, 2, 3, 4, 100)])
    python = below["python"]
    assert (python.self_us, python.self_low_us, python.self_high_us) == (3, 1.4, 61.6)
    assert root.self_us == 30
    assert root.total_us == 30 + 3 + 4
    assert below["c"].self_us == 4


def test_the_handler_is_taken_off_the_called_and_the_caller():
    python = HandlerCost(within_us=0.5, around_us=2)
    c = HandlerCost(within_us=0.25, around_us=1)
    root, below = frames_of([step(3, builtins=2)] * 3, python, c)
    assert below["python"].self_us == 2.5
    assert below["c"].self_us == 8 - 2 * 0.25
    assert root.self_us == 30 - 0.5 - 2 - 2 * 1
    assert root.total_us == pytest.approx(2.5 + 7.5 + 25.5)


def test_no_more_is_taken_off_than_there_is():
    root, below = frames_of([step(3)] * 3, HandlerCost(within_us=50, around_us=50))
    assert root.self_us == below["python"].self_us == 0
    assert root.total_us == 4


def test_nothing_is_taken_off_calls_whose_number_varies():
    c = HandlerCost(within_us=1, around_us=3)
    root, below = frames_of([step(3, builtins=n) for n in (1, 2, 3, 4, 5)], c=c)
    assert (below["c"].calls, below["c"].calls_vary) == (3, True)
    assert below["c"].self_us == 12
    assert root.self_us == 30
    assert not below["python"].calls_vary


def test_a_single_odd_repetition_does_not_make_calls_vary():
    _, below = frames_of([step(3, builtins=2 if n else 3) for n in range(20)])
    assert (below["c"].calls, below["c"].calls_vary) == (2, False)


def test_shapes_differ_by_what_is_called_and_not_by_how_often():
    tree = CallTree()
    one, two, none = (tree.timed(step(3, builtins=n)).shape for n in (1, 2, 0))
    assert one == two
    assert none < one


def test_names_come_from_events_without_times():
    tree = CallTree()
    taken = tree.timed(step(3, builtins=2))
    assert not tree.is_named(taken.shape)
    named = [
        (event, code, at, name)
        for (event, code, at, _), name in zip(
            step(3, builtins=2), [None] * 3 + ["len", None, "abs", None, None], strict=True
        )
    ]
    tree.name(named)
    assert tree.is_named(taken.shape)
    (root,) = tree.frames([taken], FREE, FREE)
    # One instruction can call several builtins.
    assert [frame.name for frame in root.children] == ["inner", "len or abs"]


def test_very_deep_calls_are_those_of_the_deepest_that_is_kept():
    depth = 500
    events = [("call", OUTER, 0, n * US) for n in range(depth)]
    events += [("return", OUTER, 0, (depth + n) * US) for n in range(depth)]
    tree = CallTree()
    (root,) = tree.frames([tree.timed(events)], FREE, FREE)
    levels, frame = 1, root
    while frame.children:
        (frame,) = frame.children
        levels += 1
    assert levels == 80
    assert root.total_us == 2 * depth - 1
    assert frame.calls == depth - 79


@pytest.mark.parametrize(
    ("builtin", "name"),
    [
        (len, "len"),
        (time.perf_counter_ns, "time.perf_counter_ns"),
        (gc.isenabled, "gc.isenabled"),
        ([].append, "list.append"),
        (dict.fromkeys, "dict.fromkeys"),
        (math.floor, "math.floor"),
    ],
)
def test_builtins_have_qualified_names(builtin, name):
    assert builtin_name(builtin) == name


def test_files_are_named_from_their_package_on():
    assert relative_file(functools.__file__) == "functools.py"
    assert relative_file(pytest.__file__) == "pytest/__init__.py"
    assert relative_file("/elsewhere/tree/kernels/bt_kernels/fusions.py") == "bt_kernels/fusions.py"
    assert relative_file(CallTree.timed.__code__.co_filename) == (
        "bt_bench/worker/profiling/call_tree.py"
    )
    assert relative_file(str(Path("/home/someone/mine.py"))) == "mine.py"
    assert relative_file("<string>") == "<string>"
