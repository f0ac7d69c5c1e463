"""The semantics in plain code: slow, obvious, on the CPU, in int64; never timed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from bt_kernels.interface import BlockTableOperations, TableState
from bt_kernels.layout import PAD_SLOT_ID, TableLayout


class Variant(BlockTableOperations):
    """What every other variant is checked against. It shares no code with them."""

    def __init__(self, layout: TableLayout, device: torch.device | str = "cpu") -> None:
        self.layout = layout
        self.device = torch.device(device)
        rows = layout.max_num_reqs
        self.block_tables = [torch.zeros(rows, w, dtype=torch.int64) for w in layout.widths]
        self.input_block_tables = [torch.zeros(rows, w, dtype=torch.int64) for w in layout.widths]
        self.slot_mappings = torch.full(
            (layout.num_groups, layout.max_num_batched_tokens), PAD_SLOT_ID, dtype=torch.int64
        )
        self.num_blocks = np.zeros((layout.num_groups, rows), dtype=np.int64)
        self.num_dirty_rows = 0
        # What a gather sees is the number of blocks at the last apply, as on a device.
        self._applied_num_blocks = self.num_blocks.copy()
        self._staged: dict[tuple[int, int], dict[int, int]] = {}

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        if not 0 <= req_index < self.layout.max_num_reqs:
            raise ValueError(f"req_index is {req_index}; max_num_reqs {self.layout.max_num_reqs}")
        if len(new_block_ids) != self.layout.num_groups:
            raise ValueError(f"{len(new_block_ids)} lists for {self.layout.num_groups} groups")
        starts = [
            0 if overwrite else int(self.num_blocks[group, req_index])
            for group in range(self.layout.num_groups)
        ]
        for group, ids in enumerate(new_block_ids):
            end = starts[group] + len(ids)
            width = self.layout.widths[group]
            if end > width:
                raise ValueError(f"row {req_index} of group {group}: {end} blocks, width {width}")
        for group, ids in enumerate(new_block_ids):
            if overwrite:
                self._staged[group, req_index] = {}
            columns = self._staged.setdefault((group, req_index), {})
            for offset, block_id in enumerate(ids):
                columns[starts[group] + offset] = block_id
            self.num_blocks[group, req_index] = starts[group] + len(ids)

    def apply_staged_writes(self) -> None:
        for (group, row), columns in self._staged.items():
            for column, block_id in columns.items():
                self.block_tables[group][row, column] = block_id
        self._staged.clear()
        self._applied_num_blocks = self.num_blocks.copy()

    def gather_block_tables(
        self, idx_mapping: torch.Tensor, num_reqs_padded: int
    ) -> tuple[torch.Tensor, ...]:
        rows = idx_mapping.tolist()
        if not len(rows) <= num_reqs_padded <= self.layout.max_num_reqs:
            raise ValueError(f"num_reqs_padded is {num_reqs_padded}; expected {len(rows)} or more")
        for group in range(self.layout.num_groups):
            source = self.block_tables[group]
            target = self.input_block_tables[group]
            for batch_index, row in enumerate(rows):
                length = self._applied_num_blocks[group, row]
                target[batch_index, :length] = source[row, :length]
            target[len(rows) : max(num_reqs_padded, self.num_dirty_rows)] = 0
        self.num_dirty_rows = len(rows)
        return tuple(table[:num_reqs_padded] for table in self.input_block_tables)

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
    ) -> torch.Tensor:
        if num_tokens_padded > self.layout.max_num_batched_tokens:
            raise ValueError(f"num_tokens_padded is {num_tokens_padded}, past the buffer")
        starts = query_start_loc.tolist()
        for group, block_size in enumerate(self.layout.block_sizes):
            slots = self.slot_mappings[group]
            slots[starts[-1] :] = PAD_SLOT_ID
            for batch_index, row in enumerate(idx_mapping.tolist()):
                blocks = self.block_tables[group][row].tolist()
                for token in range(starts[batch_index], starts[batch_index + 1]):
                    slots[token] = _slot(blocks, int(positions[token]), block_size)
        return self.slot_mappings[:, :num_tokens_padded]

    def restore(self, state: TableState) -> None:
        for table, saved in zip(self.block_tables, state.block_tables, strict=True):
            table.copy_(saved)
        for table, saved in zip(self.input_block_tables, state.input_block_tables, strict=True):
            table.copy_(saved)
        self.slot_mappings.copy_(state.slot_mappings)
        self.num_blocks[:] = state.num_blocks
        self.num_dirty_rows = state.num_dirty_rows
        self._staged.clear()
        self._applied_num_blocks = self.num_blocks.copy()


def _slot(blocks: list[int], position: int, block_size: int) -> int:
    """Slot of one token, or `PAD_SLOT_ID` for a position outside the row."""
    column = position // block_size
    if not 0 <= column < len(blocks):
        return PAD_SLOT_ID
    return blocks[column] * block_size + position % block_size
