"""Both ways to stage are checked: a defect of either alone is found, and what a caller's lists are.

The variants here are right, but for the one defect.
"""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from support.variants import classes

from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.checking.staging_ways import BOTH, TIMED, staging_way
from bt_bench.suites.block_tables.inputs import inputs_on
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_bench.worker.checking.check import check, verify_timed
from bt_bench.worker.tasks.arm import Arm

# Some of those that `check` begins with, and enough to find what is wrong here.
WORKLOADS = {
    name: workload
    for name, workload in conformance_workloads(0).items()
    if name in ("corners_int32", "edges", "corners")
}
Fused = classes(["fused"])["fused"]


def why(variant, device):
    """Why a variant is rejected: the message of the first workload that it fails, or nothing."""
    for name, workload in WORKLOADS.items():
        outcomes = check({"mine": variant}, workload, [ops.STEP], device, title=name)
        reason = outcomes["mine", ops.STEP].reason
        if reason is not None:
            return reason.message
    return ""


def test_ways_take_turns_where_there_are_both():
    both = SimpleNamespace(append_many=print)
    assert [staging_way(both, turn) for turn in range(4)] == [*BOTH, BOTH[0]]
    assert BOTH[0] is TIMED
    for tables in (SimpleNamespace(), SimpleNamespace(append_many=None)):
        assert {staging_way(tables, turn) for turn in range(3)} == {TIMED}


def test_a_step_that_mixes_ways_has_all_appends_in_order():
    calls = []
    tables = SimpleNamespace(
        append_block_ids=lambda row, *_: calls.append(row),
        append_many=lambda rows, *_: calls.append(list(rows)),
    )
    for count, wanted in (
        (0, [[], []]),
        (1, [[0], []]),
        (2, [[0], 1, []]),
        (3, [[0], 1, [2]]),
        (7, [[0, 1, 2], 3, 4, [5, 6]]),
    ):
        appends = tuple(Append(row, ([1],), False) for row in range(count))
        calls.clear()
        BOTH[2].stage(tables, SimpleNamespace(appends=appends))
        assert calls == wanted


def test_what_is_right_both_ways_passes(device):
    assert callable(Fused.append_many)
    assert why(Fused, device) == ""


def appends_where_it_must_overwrite(append, row, ids, overwrite):
    append(row, ids, False)


def drops_the_last_id(append, row, ids, overwrite):
    append(row, [*ids[:-1], ids[-1][:-1]], overwrite)


@pytest.mark.parametrize("defect", [appends_where_it_must_overwrite, drops_the_last_id])
def test_a_defect_of_calls_for_each_request_alone_is_found(defect, device):
    class Mine(Fused):
        setting_up = True  # which is by request, and would find it before any step

        def append_block_ids(self, *arguments):
            append = super().append_block_ids
            append(*arguments) if self.setting_up else defect(append, *arguments)

        def apply_staged_writes(self):
            self.setting_up = False
            super().apply_staged_writes()

        def restore(self, state):
            super().restore(state)
            self.setting_up = True

    assert ", staged by append_" in why(Mine, device)


def all_but_the_last(append_many, rows, block_ids, overwrite):
    append_many(rows[:-1], block_ids[:-1], overwrite[:-1])


def a_row_once(append_many, rows, block_ids, overwrite):
    """The last write to a row in a call replaces those before it."""
    places = sorted({row: place for place, row in enumerate(rows)}.values())
    append_many(*([given[i] for i in places] for given in (rows, block_ids, overwrite)))


def all_by_the_first_flag(append_many, rows, block_ids, overwrite):
    append_many(rows, block_ids, [overwrite[0]] * len(rows) if rows else [])


def raises_on_nothing(append_many, rows, block_ids, overwrite):
    append_many([rows[0], *rows[1:]], block_ids, overwrite)


def empties_a_list(append_many, rows, block_ids, overwrite):
    append_many(rows, block_ids, overwrite)
    if block_ids:
        block_ids[0][0].clear()


def sorts_the_rows(append_many, rows, block_ids, overwrite):
    append_many(rows, block_ids, overwrite)
    rows.sort()


def takes_a_request_away(append_many, rows, block_ids, overwrite):
    append_many(rows, block_ids, overwrite)
    if block_ids:
        block_ids.pop()


def lets_those_before_the_wrong_one_stand(append_many, rows, block_ids, overwrite):
    for row, ids, anew in zip(rows, block_ids, overwrite, strict=True):
        append_many([row], [ids], [anew])


def refuses_nothing(append_many, rows, block_ids, overwrite):
    try:
        append_many(rows, block_ids, overwrite)
    except ValueError:
        return


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        (all_but_the_last, "step 0, calls step: "),
        (a_row_once, "calls step: "),
        (all_by_the_first_flag, "step 0, calls step: "),
        (raises_on_nothing, "IndexError"),
        (empties_a_list, "new_block_ids of row "),
        (sorts_the_rows, "a list of append_many was changed"),
        (takes_a_request_away, "a list of append_many was changed"),
        (lets_those_before_the_wrong_one_stand, "refusal, calls step: "),
        (refuses_nothing, "append_many took 7 blocks for a row of group 0, which is 6 wide"),
    ],
)
def test_a_defect_of_one_call_alone_is_found(defect, message, device):
    class Mine(Fused):
        def append_many(self, *arguments):
            defect(super().append_many, *arguments)

    assert message in why(Mine, device)


def test_writes_of_one_call_that_a_restore_keeps_are_found(device):
    class Mine(Fused):
        kept = None  # staged by one call, and not applied yet

        def append_many(self, *arguments):
            super().append_many(*arguments)
            self.kept = arguments

        def apply_staged_writes(self):
            super().apply_staged_writes()
            self.kept = None

        def restore(self, state):
            super().restore(state)
            if self.kept is not None:
                super().append_many(*self.kept)

    assert ", restore, " in why(Mine, device)


def test_a_restore_that_works_only_where_the_snapshot_was_taken_is_found(device):
    class Mine(Fused):
        taken = ()

        def snapshot(self):
            self.taken = (*self.taken, super().snapshot())
            return self.taken[-1]

        def restore(self, state):
            if any(state is each for each in self.taken):
                super().restore(state)

    assert ", restore, " in why(Mine, device)


def test_a_callers_lists_that_are_kept_are_found(device):
    class Mine(Fused):
        """Reads the lists of a call only when the writes are applied."""

        kept = ((), (), ())

        def append_many(self, *arguments):
            self.kept = arguments

        def apply_staged_writes(self):
            super().append_many(*self.kept)
            self.kept = ((), (), ())
            super().apply_staged_writes()

    # What a caller has put there since: no id that is staged is negative.
    assert re.search(r"slot_mappings.* is -[0-9]+, expected [0-9]", why(Mine, device))


def test_after_timing_the_way_that_was_timed_is_compared(device):
    """Arms of a case share their inputs, whose lists a check leaves as they were."""

    class Mine(Fused):
        def append_many(self, *arguments):
            all_but_the_last(super().append_many, *arguments)

    workload = WORKLOADS["corners_int32"]
    steps = inputs_on(device, workload)
    before = [step.batched for step in inputs_on(device, workload)]
    arms = [Arm(name, kind, workload, device) for name, kind in (("right", Fused), ("mine", Mine))]
    found = verify_timed(arms, steps, workload, ops.STEP, device)
    assert list(found) == ["mine"]
    assert [step.batched for step in steps] == before
