"""Notes of which arm runs, as the other side of the shared memory reads them."""

from __future__ import annotations

import multiprocessing
import multiprocessing.heap

import pytest

from bt_bench.worker.machine import activity
from bt_bench.worker.machine.activity import Activity, SharedBlock


def test_both_sides_see_who_runs():
    block = SharedBlock()
    worker, parent = Activity(block), Activity(block)
    worker.expect({"baseline": 0, "fused": 1})
    assert parent.place is None
    with worker.running("fused"):
        assert parent.place == 1
        with worker.running("baseline"):
            assert parent.place == 0
        assert parent.place == 1
    assert parent.place is None


def test_every_note_is_a_sign_of_life():
    notes = Activity()
    seen = [notes.notes]
    before = notes.enter("baseline")
    seen.append(notes.notes)
    notes.leave(before)
    seen.append(notes.notes)
    notes.expect({})
    seen.append(notes.notes)
    assert len(set(seen)) == 4


def test_an_arm_that_nobody_expects_is_nobody():
    notes = Activity()
    notes.expect({"fused": 0})
    with notes.running("stranger"):
        assert notes.place is None


def test_without_a_supervisor_nobody_is_expected(monkeypatch):
    monkeypatch.setattr(activity, "_current", Activity())
    with activity.current().running("fused"):
        assert activity.current().place is None


def enter(block):
    """The main function of another process: an arm runs, and never returns."""
    notes = Activity(block)
    notes.expect({"baseline": 0, "fused": 1})
    notes.enter("fused")


@pytest.fixture
def no_shared_memory(monkeypatch):
    """A read-only `/dev/shm`, as containers have it."""

    def refuse(*_arguments):
        raise OSError(30, "Read-only file system", "/dev/shm/pym-1")

    monkeypatch.setattr(multiprocessing.heap.Arena, "__init__", refuse)


def test_another_process_needs_no_folder_of_shared_memory(no_shared_memory):
    block = SharedBlock()
    process = multiprocessing.get_context("spawn").Process(target=enter, args=(block,))
    process.start()
    process.join()
    assert Activity(block).place == 1


def test_without_anonymous_memory_a_temporary_file_serves(monkeypatch):
    def refuse(_name):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("os.memfd_create", refuse)
    block = SharedBlock()
    with_one, other = Activity(block), Activity(block)
    with_one.expect({"fused": 0})
    with_one.enter("fused")
    assert other.place == 0
