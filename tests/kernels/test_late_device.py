"""The host runs ahead of a busy device; what the device has yet to read is not rewritten."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from variants import SHIPPED, classes

from bt_bench.arms import bind, inputs_on, stage
from bt_bench.catalogue import load_reference
from bt_bench.model import Operation
from bt_bench.workloads.conformance import CORNERS, random_workload

HOLD_CYCLES = 100_000_000  # about 50 ms at 2 GHz
STEPS_IN_FLIGHT = 8
SPARE_ROW = CORNERS.max_num_reqs


def run_ahead(name, device, num_steps, **options):
    """Runs steps while the device is held; returns what each left, and whether it was held still.

    Every step writes something, if only to a row of no request, so that each needs a host buffer.
    """
    workload = random_workload(11, CORNERS, num_steps=num_steps)
    workload = replace(workload, layout=replace(CORNERS, max_num_reqs=SPARE_ROW + 1))
    tables = classes([name])[name](workload.layout, device, **options)
    steps = inputs_on(device, workload)
    set_up(tables, workload)
    state = tables.snapshot()
    stage(tables, steps[0])
    bind(tables, Operation.STEP, steps[0])()  # loads the kernels
    tables.restore(state)
    torch.cuda.synchronize()

    held = torch.cuda.Event()
    torch.cuda._sleep(HOLD_CYCLES)
    held.record()
    outputs = []
    for step in steps:
        stage(tables, step)
        tables.append_block_ids(SPARE_ROW, [[7]] * CORNERS.num_groups, True)
        bind(tables, Operation.STEP, step)()
        outputs.append([t.clone() for t in (*tables.input_block_tables, tables.slot_mappings)])
    was_held = not held.query()
    torch.cuda.synchronize()
    return workload, outputs, was_held


def set_up(tables, workload):
    for append in workload.setup:
        tables.append_block_ids(append.row, append.block_ids, append.overwrite)
    tables.apply_staged_writes()


def assert_exact(workload, outputs):
    reference = load_reference()(workload.layout, "cpu")
    set_up(reference, workload)
    for step, found in zip(inputs_on(torch.device("cpu"), workload), outputs, strict=True):
        stage(reference, step)
        reference.append_block_ids(SPARE_ROW, [[7]] * CORNERS.num_groups, True)
        bind(reference, Operation.STEP, step)()
        wanted = (*reference.input_block_tables, reference.slot_mappings)
        assert all(bool((a.cpu() == b).all()) for a, b in zip(found, wanted, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHIPPED)
def test_outputs_are_exact_when_the_device_is_late(name, device):
    depth = classes([name])[name](CORNERS, device)._ring.depth
    workload, outputs, _ = run_ahead(name, device, depth + 3)
    assert_exact(workload, outputs)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHIPPED)
def test_a_promised_bound_is_used_up_without_waiting(name, device):
    workload, outputs, was_held = run_ahead(
        name, device, STEPS_IN_FLIGHT, steps_in_flight=STEPS_IN_FLIGHT
    )
    assert was_held, "the host waited for the device, or the device was not held for long enough"
    assert_exact(workload, outputs)
