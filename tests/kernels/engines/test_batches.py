"""Batches that are prepared beside an engine's block tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bt_kernels import BatchInputs, BlockTables
from bt_kernels.batch_inputs import InputBuffers, InputLayout, RequestTensors

LAYOUT = InputLayout(4, 16, 32)


def batch_of(num_reqs):
    one = np.ones(num_reqs, np.int32)
    return np.arange(num_reqs)[::-1].copy(), one, 0 * one, False, None, num_reqs, num_reqs


@pytest.fixture
def tables(device):
    return BlockTables([4], 4, 16, [8], device)


def test_it_fills_the_buffers_and_tables_of_the_engine(tables):
    requests = RequestTensors.zeros(LAYOUT, tables.device)
    requests.num_computed_tokens.fill_(5)
    requests.last_sampled_tokens.fill_(42)
    buffers = InputBuffers.zeros(LAYOUT, tables.device)
    inputs = BatchInputs(tables, LAYOUT, requests, buffers)
    tables.append_block_ids(0, ([7, 9],), True)
    tables.append_block_ids(1, ([3, 8],), True)
    batch = inputs.prepare(*batch_of(2))
    assert buffers.input_ids.tolist()[:3] == [42, 42, 0]
    assert buffers.positions.tolist()[:3] == [5, 5, 0]
    assert buffers.seq_lens.tolist() == [6, 6, 0, 0]
    assert batch.idx_mapping.tolist() == [1, 0]
    assert tables.input_block_tables[0][:2, :2].tolist() == [[3, 8], [7, 9]]
    assert tables.slot_mappings[0, :3].tolist() == [8 * 4 + 1, 9 * 4 + 1, -1]
    assert batch.slot_mappings.data_ptr() == tables.slot_mappings.data_ptr()
    assert not inputs.fallbacks
    assert inputs.warmup() >= 0


def test_dummy_rows_of_the_tables_are_zeroed_by_the_next_batch(tables):
    inputs = BatchInputs(tables, LAYOUT, RequestTensors.zeros(LAYOUT, tables.device))
    for table in tables.get_dummy_block_tables(4):
        table.fill_(5)
    inputs.prepare(*batch_of(1))
    assert not tables.input_block_tables[0][1:].any()


def test_tables_of_several_launches_are_refused():
    requests = RequestTensors.zeros(LAYOUT, "cpu")
    with pytest.raises(ValueError, match="since there are no groups; expected tables of one"):
        BatchInputs(BlockTables([], 4, 16, [], "cpu"), LAYOUT, requests)
    other = BlockTables([4], 5, 16, [8], torch.device("cpu"))
    with pytest.raises(ValueError, match="max_num_reqs is 4 for inputs and 5 for tables"):
        BatchInputs(other, LAYOUT, requests)
