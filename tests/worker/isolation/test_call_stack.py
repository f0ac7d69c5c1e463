"""What a call costs does not depend on its depth."""

from __future__ import annotations

import resource
import threading

import pytest

from bt_bench.worker.isolation.call_stack import with_room

CALLS = 200
DEPTHS = range(150)  # more frames than a chunk of 16 KiB holds


def one() -> int:
    return 1


def faults_at(depth: int) -> int:
    """Page faults of many calls made under so many frames."""
    if depth:
        return faults_at(depth - 1)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(CALLS):
        one()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def most_faults(call):
    """The most page faults over all depths, in a thread of its own, whose stack is empty."""
    found = []
    thread = threading.Thread(
        target=lambda: found.append(call(lambda: max(map(faults_at, DEPTHS))))
    )
    thread.start()
    thread.join()
    return found[0]


def test_no_depth_maps_memory_for_each_call():
    assert most_faults(with_room) < CALLS / 2


def test_without_room_one_depth_does():
    """Or the test above could not fail."""
    most = most_faults(lambda function: function())
    if most < CALLS:
        pytest.skip("this CPython keeps the chunk that it freed last (gh-142183)")


def test_the_result_and_what_is_raised_are_those_of_the_function():
    assert with_room(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        with_room(lambda: 1 // 0)
