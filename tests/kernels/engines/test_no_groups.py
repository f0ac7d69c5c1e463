"""Tables of an engine without a KV cache: no groups, and every method works."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.variants import SHIPPED, classes

from bt_kernels import BlockTables
from bt_kernels.layout import TableLayout

MAPPING = torch.tensor([3, -1, 99])
STARTS = torch.tensor([0, 1, 2, 4], dtype=torch.int32)
BATCH = (MAPPING, STARTS, torch.zeros(4, dtype=torch.int64))


@pytest.fixture
def tables(device):
    return BlockTables([], 4, 16, [], device)


def test_attributes_are_empty(tables, device):
    assert tables.num_kv_cache_groups == 0
    assert (tables.block_tables, tables.input_block_tables, tables.block_sizes) == ([], [], [])
    assert tables.slot_mappings.shape == (0, 16)
    assert tables.slot_mappings.dtype is torch.int64
    assert tables.num_blocks.np.shape == tables.num_blocks.gpu.shape == (0, 4)
    assert tables.device == device
    assert tables.fused_writer is None
    assert not tables.has_sliding_window_groups
    for name in (
        *("block_table_ptrs", "input_block_table_ptrs", "block_table_strides"),
        *("block_sizes_tensor", "slot_mapping_enabled", "sliding_window_reach", "dcp_sharded"),
    ):
        assert getattr(tables, name).shape == (0,), name
    assert tables.block_table_ptrs.dtype is torch.uint64


def test_writes_are_taken_and_do_nothing(tables):
    tables.append_block_ids(0, (), True)
    tables.append_block_ids(req_index=0, new_block_ids=(), overwrite=False)
    tables.append_many([0, 1], [(), ()], [True, False])
    tables.redirect_writes_to_null_block = True
    tables.append_block_ids(3, (), True)
    assert tables.redirect_writes_to_null_block
    tables.apply_staged_writes()
    tables.init_block_table_layout_tensors()
    assert tables.warmup() == 0


def test_results_are_empty(tables):
    assert tables.gather_block_tables(MAPPING, 9) == ()
    computed = torch.zeros(4, dtype=torch.int32)
    pointers = torch.zeros(0, dtype=torch.uint64)
    assert tables.gather_block_tables(MAPPING, 9, (), pointers, computed) == ()
    assert tables.compute_slot_mappings(*BATCH, 5).shape == (0, 5)
    out = torch.zeros((0, 40), dtype=torch.int64)
    assert tables.compute_slot_mappings(*BATCH, 33, out=out).shape == (0, 33)
    assert tables.get_dummy_block_tables(3) == ()
    assert tables.num_dirty_rows == 3
    slots = tables.get_dummy_slot_mappings(7)
    assert (slots.shape, slots.dtype) == ((0, 7), torch.int64)
    for step in (tables.prepare_step, tables.gather_and_compute_slot_mappings):
        views, slots = step(*BATCH, 3, 5)
        assert (views, slots.shape) == ((), (0, 5))
    captured = tables.capture_step(*BATCH, 3, 5)
    captured.publish()
    assert (captured.block_tables, captured.slot_mappings.shape) == ((), (0, 5))


def test_the_launch_path_is_tritons_as_nothing_is_launched(tables):
    assert tables.launch_path == "jit"
    tables.launch_path = "jit"


def test_a_snapshot_is_restored(tables):
    tables.num_dirty_rows = 2
    variant = tables._variant
    state = variant.snapshot()
    tables.num_dirty_rows = 1
    variant.restore(state)
    assert tables.num_dirty_rows == 2


def test_the_reference_takes_no_groups():
    reference = classes(["reference"])["reference"](TableLayout((), (), 4, 16))
    reference.append_block_ids(0, (), True)
    views, slots = reference.prepare_step(*BATCH[:1], STARTS, BATCH[2], 3, 5)
    assert (views, slots.shape) == ((), (0, 5))
    assert np.array(reference.num_blocks).shape == (0, 4)


@pytest.mark.parametrize("name", SHIPPED)
def test_variants_name_the_class_that_takes_no_groups(name, device):
    with pytest.raises(ValueError, match=r"no groups; .*bt_kernels\.BlockTables"):
        classes([name])[name](TableLayout((), (), 4, 16), device)


def test_options_are_one_per_group(device):
    with pytest.raises(ValueError, match="1 options are given for 0 groups"):
        BlockTables([], 4, 16, [], device, slot_mapping_enabled=[True])
    BlockTables([], 4, 16, [], device, 2, 1, 3, [], [], [], steps_in_flight=2, validate=True)
