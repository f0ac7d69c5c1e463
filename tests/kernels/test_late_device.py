"""The host runs ahead of a busy device; what the device has yet to read is not rewritten."""

from __future__ import annotations

import pytest
import torch
from variants import SHIPPED, classes

from bt_bench.arms import bind, inputs_on, stage
from bt_bench.catalogue import load_reference
from bt_bench.model import Operation
from bt_bench.workloads.conformance import CORNERS, random_workload

HOLD_CYCLES = 100_000_000  # about 50 ms at 2 GHz


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHIPPED)
def test_outputs_are_exact_when_the_device_is_late(name, device):
    workload = random_workload(11, CORNERS, num_steps=6)
    reference = load_reference()(workload.layout, "cpu")
    tables = classes([name])[name](workload.layout, device)
    for append in workload.setup:
        for each in (reference, tables):
            each.append_block_ids(append.row, append.block_ids, append.overwrite)
    steps = inputs_on(device, workload)
    tables.prepare_step(*steps[0].tensors, CORNERS.max_num_reqs, 0)  # compiles the kernels
    reference.prepare_step(*inputs_on(torch.device("cpu"), workload)[0].tensors, 6, 0)
    torch.cuda.synchronize()

    torch.cuda._sleep(HOLD_CYCLES)
    outputs = []
    for step in steps:
        stage(tables, step)
        bind(tables, Operation.STEP, step)()
        outputs.append([t.clone() for t in (*tables.input_block_tables, tables.slot_mappings)])
    torch.cuda.synchronize()

    for step, found in zip(inputs_on(torch.device("cpu"), workload), outputs, strict=True):
        stage(reference, step)
        bind(reference, Operation.STEP, step)()
        wanted = (*reference.input_block_tables, reference.slot_mappings)
        assert all(bool((a.cpu() == b).all()) for a, b in zip(found, wanted, strict=True))
