"""Fault: the gather looks for the batch index of each row, so a row that is twice in the mapping
is copied once.

Seen: with a row at two batch indices the first one's input row keeps its old contents.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Source rows are visited once."""

    capturable = frozenset({"compute_slot_mappings"})

    def _launch_gather(
        self,
        idx_mapping: torch.Tensor,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
    ) -> None:
        if out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        rows = idx_mapping.tolist()
        for group, source in enumerate(self.block_tables):
            target = self.input_block_tables[group]
            counts = self.num_blocks_on_device[group].tolist()
            target[len(rows) : num_rows] = 0
            index_of = {row: place for place, row in enumerate(rows) if row >= 0}
            for batch_index, row in enumerate(rows):
                if row >= 0 and index_of[row] != batch_index:
                    continue
                if row < 0:
                    target[batch_index] = 0
                    continue
                length = counts[row]
                first = self._first_column(group, row, num_computed_tokens)
                target[batch_index, :length] = source[row, :length]
                target[batch_index, : min(first, length)] = 0

    def _first_column(self, group: int, row: int, computed: torch.Tensor | None) -> int:
        reach = self.layout.reaches[group]
        if computed is None or reach == 0:
            return 0
        return max(int(computed[row]) - reach, 0) // self.layout.block_sizes[group]
