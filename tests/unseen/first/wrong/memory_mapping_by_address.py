"""Fault: the rows of idx_mapping are kept on the host and found again by its address and length.

Seen: change the contents of the same idx_mapping in place between two gathers: the second
gathers the old rows.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply
from bt_kernels.layout import TableLayout


class Variant(FusedApply):
    """Mappings of persistent buffers are read once."""

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._known: dict[tuple[int, int], list[int]] = {}

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
        key = (idx_mapping.data_ptr(), idx_mapping.numel())
        rows = self._known.setdefault(key, idx_mapping.tolist())
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
        reach = self.layout.reaches[group]
        if computed is None or reach == 0:
            return 0
        return max(int(computed[row]) - reach, 0) // self.layout.block_sizes[group]
