"""Fault: the sliding window stays on with context parallelism.

Seen: with cp_size above 1, a reach and num_computed_tokens, leading columns of input rows are 0
and not their ids.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply
from bt_kernels.layout import TableLayout


class Variant(FusedApply):
    """The window is a property of the group alone."""

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._has_window = any(layout.sliding_window_reach)

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
                target[batch_index, :length] = source[row, :length]
                target[batch_index, : min(first, length)] = 0

    def _first_column(self, group: int, row: int, computed: torch.Tensor | None) -> int:
        reach = self.layout.sliding_window_reach[group]
        if computed is None or reach == 0:
            return 0
        return max(int(computed[row]) - reach, 0) // self.layout.block_sizes[group]
