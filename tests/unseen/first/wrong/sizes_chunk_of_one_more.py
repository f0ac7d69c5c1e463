"""Fault: the last chunk of 64 columns is left out if it holds a single column.

Seen: the last block of a row with 65, 129, 193 ... blocks is missing in the input table after a
gather.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply

CHUNK = 64


class Variant(FusedApply):
    """Gather by torch in chunks."""

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
                first = self._first_column(group, row, num_computed_tokens)
                chunks = max((length + CHUNK - 2) // CHUNK, 1)
                length = min(chunks * CHUNK, length)
                target[batch_index, :length] = source[row, :length]
                target[batch_index, : min(first, length)] = 0

    def _first_column(self, group: int, row: int, computed: torch.Tensor | None) -> int:
        reach = self.layout.reaches[group]
        if computed is None or reach == 0:
            return 0
        return max(int(computed[row]) - reach, 0) // self.layout.block_sizes[group]
