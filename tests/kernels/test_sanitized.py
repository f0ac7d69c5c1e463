"""What runs under compute-sanitizer (`make sanitize`): every kernel, with every feature, once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.batches import CORNERS, play
from support.variants import SHIPPED, classes, failures

from bt_bench.suites.batch_preparation.workloads.conformance import workload_of
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_kernels.batch_inputs.fused import FusedInputs, OneLaunchInputs
from bt_kernels.batch_inputs.separate import SeparateInputs
from bt_kernels.batch_inputs.staged_copy import StagedCopyInputs
from bt_kernels.layout import TableLayout

pytestmark = [pytest.mark.gpu, pytest.mark.sanitize]

ALL = [ops.APPLY, ops.GATHER_SLOTS, ops.STEP]
LAYOUT = TableLayout((16, 4), (3, 9), max_num_reqs=3, max_num_batched_tokens=16)


@pytest.mark.parametrize("workload", list(conformance_workloads(seed=0)))
def test_conformance_workloads(workload, device):
    found = failures(classes(SHIPPED), conformance_workloads(seed=0)[workload], ALL, device)
    assert found == {}


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("variant", [SeparateInputs, StagedCopyInputs, OneLaunchInputs])
def test_batches(variant, corner):
    """Hold that all kernels that prepare inputs are clean; those of whole steps in one launch."""
    workload = workload_of(replace(CORNERS[corner], num_steps=2), np.random.default_rng(0))
    play(variant, workload, ("prepare",), "cuda")


@pytest.mark.parametrize("corner", ["drafts, lookahead, two groups", "no token of its own"])
def test_inputs_in_one_launch(corner):
    workload = workload_of(replace(CORNERS[corner], num_steps=2), np.random.default_rng(0))
    play(FusedInputs, workload, ("inputs",), "cuda")


@pytest.mark.parametrize("name", SHIPPED)
def test_captured_step_and_dummy_outputs(name, device):
    tables = classes([name])[name](LAYOUT, device)
    batch = (
        torch.tensor([2, -1], device=device),
        torch.tensor([0, 3, 5], dtype=torch.int32, device=device),
        torch.tensor([0, 15, 16, 7, 8], device=device),
    )
    tables.capture_step(*batch, 3, 8)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step = tables.capture_step(*batch, 3, 8)
    for ids in ([[7, 9], [1, 2, 3]], [[5], [4]]):
        tables.append_block_ids(2, ids, False)
        step.publish()
        graph.replay()
    assert step.slot_mappings.tolist()[0] == [112, 127, 144, -1, -1, -1, -1, -1]
    assert [int(t.sum()) for t in tables.get_dummy_block_tables(2)] == [0, 0]
    assert bool((tables.get_dummy_slot_mappings(4) == -1).all())
