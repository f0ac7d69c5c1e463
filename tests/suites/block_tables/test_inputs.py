"""How writes are staged: one call where there is one, its lists made before, the same writes."""

from __future__ import annotations

import pytest
import torch

from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.calls import bind, stage
from bt_bench.suites.block_tables.inputs import (
    BatchedAppends,
    append_many_of,
    copied,
    inputs_on,
    staging_call,
)
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_bench.worker.tasks.arm import Arm

APPENDS = (Append(3, ([1, 2], []), True), Append(0, ([5], [6]), False))


class Recorder:
    """Tables that note the calls that stage."""

    def __init__(self):
        self.calls = []

    def append_block_ids(self, *arguments):
        self.calls.append(("append_block_ids", *arguments))


class Batched(Recorder):
    def append_many(self, *arguments):
        self.calls.append(("append_many", *arguments))


def test_a_call_for_each_request_where_there_is_no_other():
    tables = Recorder()
    staging_call(tables, APPENDS, BatchedAppends.of(APPENDS))()
    assert tables.calls == [
        ("append_block_ids", 3, ([1, 2], []), True),
        ("append_block_ids", 0, ([5], [6]), False),
    ]


def test_one_call_with_a_list_for_each_argument():
    tables, batched = Batched(), BatchedAppends.of(APPENDS)
    staging_call(tables, APPENDS, batched)()
    (call,) = tables.calls
    assert call == ("append_many", [3, 0], [([1, 2], []), ([5], [6])], [True, False])
    # No list is made within the call, and lists of block ids are those of the appends.
    lists = (batched.rows, batched.block_ids, batched.overwrite)
    assert all(given is made for given, made in zip(call[1:], lists, strict=True))
    assert batched.block_ids[0][0] is APPENDS[0].block_ids[0]


def test_a_method_that_is_none_is_none():
    class Without(Batched):
        append_many = None

    assert append_many_of(Without()) is append_many_of(Recorder()) is None


def test_lists_are_made_with_the_inputs_and_are_nobody_elses():
    workload = conformance_workloads(0)["corners"]
    first, again = (inputs_on(torch.device("cpu"), workload)[1] for _ in range(2))
    assert len(first.batched.rows) == len(workload.steps[1].appends) > 1
    assert first.batched == again.batched
    for given, own, other in zip(
        workload.steps[1].appends, first.batched.block_ids, again.batched.block_ids, strict=True
    ):
        assert len({id(ids[0]) for ids in (given.block_ids, own, other)}) == 3
    assert copied(APPENDS[0]).block_ids[0] is not APPENDS[0].block_ids[0]


@pytest.mark.parametrize("tables", [Recorder(), Batched()])
def test_what_is_timed_is_what_is_staged(tables):
    step = inputs_on(torch.device("cpu"), conformance_workloads(0)["corners"])[1]
    stage(tables, step)
    calls = list(tables.calls)
    tables.calls.clear()
    bind(tables, ops.STAGE, step)()
    assert tables.calls == calls != []


def test_setting_up_is_by_request():
    workload = conformance_workloads(0)["shrinking"]
    calls = []

    class Tables(Batched):
        def __init__(self, layout, device):
            self.calls = calls

        def apply_staged_writes(self):
            pass

        snapshot = apply_staged_writes

    Arm("mine", Tables, workload, torch.device("cpu"))
    assert [call[:2] for call in calls] == [
        ("append_block_ids", append.row) for append in workload.setup
    ]
