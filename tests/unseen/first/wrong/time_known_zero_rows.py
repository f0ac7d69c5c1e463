"""Fault: rows that were zeroed before are not zeroed again, even if a restore filled them since.

Seen: gather 1 request padded to 4, restore a snapshot with 4 filled input rows, gather 1 padded
to 4: rows 1 to 3 are those of the snapshot.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply
from bt_kernels.layout import TableLayout


class Variant(FusedApply):
    """Zeroes each padded row once."""

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._is_zero = [False] * layout.max_num_reqs

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
        fresh = [r for r in range(len(rows), num_rows) if not self._is_zero[r]]
        self._is_zero[: len(rows)] = [False] * len(rows)
        for group, source in enumerate(self.block_tables):
            target = self.input_block_tables[group]
            counts = self.num_blocks_on_device[group].tolist()
            target[fresh] = 0
            for batch_index, row in enumerate(rows):
                if row < 0:
                    target[batch_index] = 0
                    continue
                length = counts[row]
                first = self._first_column(group, row, num_computed_tokens)
                target[batch_index, :length] = source[row, :length]
                target[batch_index, : min(first, length)] = 0
        for row in fresh:
            self._is_zero[row] = True

    def _first_column(self, group: int, row: int, computed: torch.Tensor | None) -> int:
        reach = self.layout.reaches[group]
        if computed is None or reach == 0:
            return 0
        return max(int(computed[row]) - reach, 0) // self.layout.block_sizes[group]

    def get_dummy_block_tables(self, num_reqs: int) -> tuple[torch.Tensor, ...]:
        self._is_zero = [False] * self.layout.max_num_reqs
        views = super().get_dummy_block_tables(num_reqs)
        self._is_zero[:num_reqs] = [False] * num_reqs
        return views
