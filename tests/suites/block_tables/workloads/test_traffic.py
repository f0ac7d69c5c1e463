"""The bytes that must move, against the cells that the reference itself reads and writes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bt_bench.protocol import Traffic
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.checking.trial import relabel
from bt_bench.suites.block_tables.inputs import append_each, step_on
from bt_bench.suites.block_tables.workloads.assemble import step_of_requests
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_bench.suites.block_tables.workloads.steps import Append
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_bench.variants.catalogue import load_reference
from bt_kernels.layout import TableLayout

WORKLOADS = conformance_workloads(0)


def test_a_step_by_hand():
    """Two rows of three and one blocks; a write of one; a decode of each, then of one alone."""
    layout = TableLayout((4,), (5,), max_num_reqs=3, max_num_batched_tokens=8)
    setup = (Append(0, ([7, 8],), overwrite=True), Append(2, ([9],), overwrite=True))
    first = step_of_requests([Append(0, ([3],), overwrite=False)], [0, 2], [[8], [1]])
    then = step_of_requests([], [2], [[2]])
    workload = Workload(layout, "int64", setup, (first, then))
    assert workload.traffic(ops.STAGE) == [Traffic(0, 0)] * 2
    assert workload.traffic(ops.APPLY) == [Traffic(0, 4), Traffic(0, 0)]
    # idx_mapping, and 4 or 1 owned blocks; then the row that is left over is zeroed, 5 wide.
    assert workload.traffic(ops.GATHER) == [Traffic(16 + 16, 16), Traffic(8 + 4, 4 + 20)]
    # idx_mapping, query_start_loc, positions, and the block of each token.
    slots = [Traffic(16 + 12 + 16 + 8, 16), Traffic(8 + 8 + 8 + 4, 16)]
    assert workload.traffic(ops.SLOTS) == slots
    # The blocks of tokens are among those that are gathered.
    both = [Traffic(16 + 12 + 16 + 16, 32), Traffic(8 + 8 + 8 + 4, 24 + 16)]
    assert workload.traffic(ops.GATHER_SLOTS) == both
    # The block that is applied in the same call need not be read.
    assert workload.traffic(ops.STEP) == [Traffic(both[0].read - 4, 36), both[1]]


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_no_more_is_counted_than_the_reference_changes_or_may_read(name):
    """Every change of an output is a write, so no fewer may be counted than change."""
    workload = relabel(WORKLOADS[name], np.random.default_rng(1))
    reference = load_reference()(workload.layout, "cpu")
    append_each(reference, workload.setup)
    reference.apply_staged_writes()
    for index, given in enumerate(workload.steps):
        step = step_on(torch.device("cpu"), workload, given)
        tables = [table.clone() for table in reference.input_block_tables]
        source = [table.clone() for table in reference.block_tables]
        slots = reference.slot_mappings.clone()
        append_each(reference, step.appends)
        batch = step.idx_mapping, step.query_start_loc, step.positions
        options = {}
        if step.num_computed_tokens is not None:
            options["num_computed_tokens"] = step.num_computed_tokens
        reference.prepare_step(*batch, step.num_reqs_padded, step.num_tokens_padded, **options)
        pairs = zip(tables, reference.input_block_tables, strict=True)
        rows = sum(int((old != new).sum()) for old, new in pairs)
        applied = sum(
            int((old != new).sum()) for old, new in zip(source, reference.block_tables, strict=True)
        )
        changed = int((slots != reference.slot_mappings).sum())
        written = workload.traffic(ops.STEP)[index].written
        if index or not changed:  # the buffer begins with zeros, which are no padding
            assert 4 * (rows + applied) + 8 * changed <= written
        parts = [workload.traffic(each)[index] for each in (ops.APPLY, ops.GATHER, ops.SLOTS)]
        fused, step_bytes = (workload.traffic(each)[index] for each in (ops.GATHER_SLOTS, ops.STEP))
        assert fused.read <= parts[1].read + parts[2].read
        assert step_bytes.read <= fused.read
        assert step_bytes.written == sum(part.written for part in parts)
