"""An engine's use of the block tables: `test_user_code.py` checks its types, and runs it.

`assert_type` does nothing when it runs. The type checker refuses it for any other type, and for
`Any`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import torch

import bt_bench
from bt_kernels import PAD_SLOT_ID, BlockTables, TableLayout
from bt_kernels.device_tables import CapturedStep
from bt_kernels.interface import BlockTableOperations, TableState
from bt_kernels.layout import FEATURES
from bt_kernels.variants import (
    baseline,
    fused,
    fused_apply,
    fused_gather_slots,
    one_launch,
    one_launch_graph,
    reference,
)

Tables = tuple[torch.Tensor, ...]

VARIANTS: list[type[BlockTableOperations]] = [
    baseline.Variant,
    fused.Variant,
    fused_apply.Variant,
    fused_gather_slots.Variant,
    one_launch.Variant,
    one_launch_graph.Variant,
    reference.Variant,
]


class CountingTables(BlockTables):
    """Block tables that count the requests whose ids are staged."""

    num_staged = 0

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        """Stage new block ids of one request row."""
        super().append_block_ids(req_index, new_block_ids, overwrite)
        self.num_staged += 1


def serve(tables: BlockTables, device: torch.device) -> torch.Tensor:
    """Run some steps of an engine; return the slots of the last."""
    assert_type(tables.warmup(), float)
    tables.append_block_ids(0, [[3, 4], [5]], overwrite=True)
    tables.append_many([1, 2], [[[6], [7]], [[8], (9,)]], [True, False])
    mapping = torch.tensor([0, 1], dtype=torch.int32, device=device)
    starts = torch.tensor([0, 2, 3], dtype=torch.int32, device=device)
    positions = torch.tensor([0, 1, 0], dtype=torch.int64, device=device)

    both = tables.prepare_step(mapping, starts, positions, 2, 4)
    assert_type(both, tuple[Tables, torch.Tensor])
    assert_type(tables.gather_block_tables(mapping, 2), Tables)
    assert_type(tables.compute_slot_mappings(mapping, starts, positions, 4), torch.Tensor)
    assert_type(tables.get_dummy_block_tables(1), Tables)
    assert_type(tables.get_dummy_slot_mappings(4), torch.Tensor)

    step = tables.capture_step(mapping, starts, positions, 2, 4)
    assert_type(step, CapturedStep)
    step.publish()
    assert_type(step.block_tables, Tables)

    assert_type(tables.layout, TableLayout)
    assert_type(tables.block_tables[0].gpu, torch.Tensor)
    assert_type(tables.input_block_tables, list[torch.Tensor])
    assert_type(tables.num_blocks.np, npt.NDArray[np.int32])
    assert_type(tables.num_blocks.gpu, torch.Tensor)
    assert_type(tables.block_table_ptrs, torch.Tensor)
    assert_type(tables.launch_path, str)
    assert_type(tables.num_dirty_rows, int)
    assert_type(tables.redirect_writes_to_null_block, bool)
    return both[1]


def snapshot(variant: type[BlockTableOperations], layout: TableLayout) -> TableState:
    """Stage and apply a write with a variant; return its state."""
    tables = variant(layout, "cpu")
    assert_type(tables.features, frozenset[str])
    assert_type(tables.launch_paths, tuple[str, ...])
    tables.append_block_ids(0, [[1, 2], [3]], True)
    tables.apply_staged_writes()
    state = tables.snapshot()
    tables.restore(state)
    assert_type(state.block_tables, list[torch.Tensor])
    assert_type(state.num_blocks, npt.NDArray[np.integer[Any]])
    return state


def main() -> None:
    """Use everything that is public."""
    assert_type(bt_bench.__version__, str)
    assert_type(PAD_SLOT_ID, int)
    assert_type(FEATURES, frozenset[str])
    device = torch.device("cpu")
    tables = CountingTables([2, 4], 4, 8, [4, 2], device, sliding_window_reach=[0, 4])
    slots = serve(tables, device)
    assert slots.tolist()[0] == [6, 7, 12, PAD_SLOT_ID]
    assert tables.num_staged == 1
    layout = TableLayout.for_length((2, 4), 8, 4, 8, slot_mapping_enabled=(True, False))
    assert_type(layout, TableLayout)
    assert_type(layout.widths, tuple[int, ...])
    assert_type(layout.features, frozenset[str])
    for variant in VARIANTS:
        assert snapshot(variant, layout).num_blocks.tolist() == [[2, 0, 0, 0], [1, 0, 0, 0]]


if __name__ == "__main__":
    main()
