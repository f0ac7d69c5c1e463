"""Notes of which arm runs, as the other side of the shared memory reads them."""

from __future__ import annotations

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
