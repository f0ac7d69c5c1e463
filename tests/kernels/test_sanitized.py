"""What runs under compute-sanitizer (`make sanitize`): every kernel, with every feature, once."""

from __future__ import annotations

import pytest
import torch
from support.variants import SHIPPED, classes, failures

from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_kernels.layout import TableLayout

pytestmark = [pytest.mark.gpu, pytest.mark.sanitize]

ALL = [ops.APPLY, ops.GATHER_SLOTS, ops.STEP]
LAYOUT = TableLayout((16, 4), (3, 9), max_num_reqs=3, max_num_batched_tokens=16)


@pytest.mark.parametrize("workload", list(conformance_workloads(seed=0)))
def test_conformance_workloads(workload, device):
    found = failures(classes(SHIPPED), conformance_workloads(seed=0)[workload], ALL, device)
    assert found == {}


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
