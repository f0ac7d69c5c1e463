"""What an arm does before and after an operation in its step."""

from __future__ import annotations

import pytest

from bt_bench.results.run.plan import Plan
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.inputs import inputs_on
from bt_bench.suites.block_tables.workloads.assemble import step_of_requests
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_bench.variants.catalogue import find_variants, load_apart
from bt_bench.worker.checking.check import verify_timed
from bt_bench.worker.measuring.case import build_instances
from bt_bench.worker.measuring.methods.interpreter import count_launches
from bt_bench.worker.tasks.arm import Arm
from bt_kernels import native
from bt_kernels.layout import TableLayout

APPLIES_BEFORE = {ops.GATHER, ops.SLOTS, ops.GATHER_SLOTS}


@pytest.fixture
def arm(device):
    """An arm whose row is full after the last step: nothing may be staged twice."""
    appends = [Append(0, ([n + 1],), overwrite=n == 0) for n in range(2)]
    steps = tuple(step_of_requests([each], [0], [[n]]) for n, each in enumerate(appends))
    layout = TableLayout.for_length((1,), 2, max_num_reqs=2, max_num_batched_tokens=4)
    workload = Workload(layout, "int64", (), steps)
    made = Arm("baseline", load_apart(find_variants()["baseline"]), workload, device)
    made.steps = inputs_on(device, workload)
    return made


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("operation", list(ops.OPERATIONS))
def test_what_precedes_and_what_follows(arm, monkeypatch, operation, staged):
    calls = []
    for name in {"append_many", *(each.method for each in ops.OPERATIONS)}:
        monkeypatch.setattr(arm.variant, name, lambda *_, name=name, **__: calls.append(name))
    call = arm.ready(operation, arm.steps[0], staged=staged)
    before = [] if staged or operation is ops.STAGE else ["append_many"]
    before += ["apply_staged_writes"] * (operation in APPLIES_BEFORE)
    assert calls == before
    calls.clear()
    call()
    timed = "append_many" if operation is ops.STAGE else operation.method
    assert calls == [timed]
    arm.finish(operation)
    assert calls[1:] == ["apply_staged_writes"] * (operation is ops.STAGE)


@pytest.mark.parametrize("operation", list(ops.OPERATIONS))
def test_nothing_is_staged_twice_where_launches_are_counted(arm, operation):
    census = count_launches(arm, arm.steps, operation)
    assert len(census.steps) == 2
    assert arm.variant.num_blocks.tolist() == [[2, 0]]


def test_only_the_first_instance_of_a_variant_is_staged(device, monkeypatch):
    layout = TableLayout.for_length((1,), 2, max_num_reqs=2, max_num_batched_tokens=4)
    step = step_of_requests([Append(1, ([7],), overwrite=True)], [0], [[0]])
    workload = Workload(layout, "int64", (Append(0, ([3],), overwrite=True),), (step,))
    variant = load_apart(find_variants()["baseline"])
    staged = []
    append = variant.append_block_ids
    monkeypatch.setattr(
        variant, "append_block_ids", lambda self, *a: (staged.append(a[1]), append(self, *a))
    )
    plan = Plan(instances=3)
    instances = [arms[0] for arms in build_instances({"a": [variant]}, workload, plan, device)]
    assert [[list(ids) for ids in each] for each in staged] == [[[3]]]

    def first_blocks():
        return [int(arm.variant.block_tables[0][0, 0]) for arm in instances]

    assert first_blocks() == [3, 3, 3]
    assert [arm.variant.num_blocks.tolist() for arm in instances] == [[[1, 0]]] * 3
    instances[1].variant.append_block_ids(0, [[9]], True)
    instances[1].variant.apply_staged_writes()
    assert first_blocks() == [3, 9, 3]
    for arm in instances:
        arm.rewind()
    assert first_blocks() == [3, 3, 3]

    # Other contents, too; they differ from its own, and from the ones before.
    seen = set()
    steps = inputs_on(device, workload)
    for _ in range(2):
        staged.clear()
        assert verify_timed(instances, steps, workload, ops.STEP, device) == {}
        blocks = {int(each) for (ids,) in staged for each in ids}
        assert len(staged) == 1, "steps are staged by append_many"
        assert not blocks & seen
        seen |= blocks | {3, 7}


@pytest.mark.parametrize("in_c", [False, True])
@pytest.mark.parametrize("operation", [ops.GATHER, ops.GATHER_SLOTS])
def test_tables_are_told_which_rows_a_replay_filled(arm, operation, in_c):
    """Also where a method is C's, which is bound to an object that is not the tables."""
    if in_c:
        if (launcher := native.load("launcher")) is None:
            pytest.skip("there is no C compiler, so no method is one of C")
        calls = launcher.Calls(arm.variant)
        setattr(arm.variant, operation.method, getattr(calls, operation.method))
    call = arm.driver.call(operation, arm.steps[0])
    arm.variant.num_dirty_rows = 0
    arm.driver.replayed(call)
    assert arm.variant.num_dirty_rows == arm.steps[0].idx_mapping.shape[0] > 0


def test_no_rows_are_told_of_a_replay_that_fills_none(arm):
    for operation in set(ops.OPERATIONS) - {ops.GATHER, ops.GATHER_SLOTS}:
        arm.variant.num_dirty_rows = 5
        arm.driver.replayed(arm.driver.call(operation, arm.steps[0]))
        assert arm.variant.num_dirty_rows == 5, operation
