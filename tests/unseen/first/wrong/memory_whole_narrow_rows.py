"""Fault: rows of at most 32 columns are copied whole, not only up to their number of blocks.

Seen: columns of a live row from num_blocks on hold the source row's old ids, or 0, where the
input row was to keep its own.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """A narrow row is one vector."""

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
            for batch_index, row in enumerate(rows):
                if row < 0:
                    target[batch_index] = 0
                    continue
                length = counts[row]
                if self.layout.widths[group] <= 32:
                    target[batch_index] = source[row]
                first = self._first_column(group, row, num_computed_tokens)
                target[batch_index, :length] = source[row, :length]
                target[batch_index, : min(first, length)] = 0

    def _first_column(self, group: int, row: int, computed: torch.Tensor | None) -> int:
        reach = self.layout.reaches[group]
        if computed is None or reach == 0:
            return 0
        return max(int(computed[row]) - reach, 0) // self.layout.block_sizes[group]
