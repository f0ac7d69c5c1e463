"""Tables that are built in inference mode are used outside of it, and the other way round.

Torch refuses to write to a tensor of inference mode outside of it.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from support.playing import EngineTables
from support.variants import SHIPPED, assert_equal, classes

from bt_kernels.layout import TableLayout
from bt_kernels.variants.reference import Variant as Reference

LAYOUT = TableLayout((4, 2), (3, 5), max_num_reqs=4, max_num_batched_tokens=8)
VARIANTS = {**classes(SHIPPED), "BlockTables": EngineTables}
MODES = {"inference": torch.inference_mode, "normal": nullcontext}


def batch(*rows):
    starts = torch.arange(len(rows) + 1, dtype=torch.int32)
    return torch.tensor(rows), starts, torch.zeros(len(rows), dtype=torch.int64)


def use(tables):
    """Call every method that writes to tables."""
    for row in range(4):
        tables.append_block_ids(row, [[row + 1], [row + 5]], True)
    tables.prepare_step(*batch(3, 2, 1), 3, 3)
    step = tables.capture_step(*batch(1), 1, 1)
    tables.append_block_ids(2, [[9], [9]], False)
    step.publish()  # zeroes the rows behind its own
    tables.apply_staged_writes()
    tables.gather_block_tables(torch.tensor([2]), 1)
    state = tables.snapshot()
    tables.append_block_ids(0, [[8], [8]], False)
    tables.restore(state)
    tables.init_block_table_layout_tensors()
    tables.get_dummy_slot_mappings(3)
    tables.compute_slot_mappings(*batch(2, 1), 2)
    views = tables.get_dummy_block_tables(2)
    tables.gather_and_compute_slot_mappings(*batch(3, 0), 2, 2)
    return views


def use_reference():
    tables = Reference(LAYOUT)
    for row in range(4):
        tables.append_block_ids(row, [[row + 1], [row + 5]], True)
    tables.append_block_ids(2, [[9], [9]], False)
    tables.apply_staged_writes()
    tables.gather_and_compute_slot_mappings(*batch(3, 0), 2, 2)
    return tables


@pytest.mark.parametrize("used", MODES)
@pytest.mark.parametrize("built", MODES)
@pytest.mark.parametrize("name", VARIANTS)
def test_every_method_works_in_either_mode(name, built, used, device):
    with MODES[built]():
        tables = VARIANTS[name](LAYOUT, device)
    with MODES[used]():
        use(tables)
    assert_equal(tables, use_reference())


def test_tables_of_inference_mode_may_replace_others(device):
    tables = EngineTables(LAYOUT, device)
    with torch.inference_mode():
        tables.block_tables = [table.clone() for table in tables.block_tables]
        tables.input_block_tables = [table.clone() for table in tables.input_block_tables]
        tables.slot_mappings = tables.slot_mappings.clone()
    tables.init_block_table_layout_tensors()
    use(tables)
    assert_equal(tables, use_reference())
