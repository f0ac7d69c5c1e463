"""Right: every buffer lies within a larger one full of marks, which an apply checks."""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply
from bt_kernels.layout import TableLayout


class Variant(FusedApply):
    """Writes out of bounds would be noticed."""

    MARK = 0x5A5A5A5

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._guards: list[torch.Tensor] = []
        self.block_tables = [self._guarded(table) for table in self.block_tables]
        self.input_block_tables = [self._guarded(table) for table in self.input_block_tables]
        self.slot_mappings = self._guarded(self.slot_mappings)
        self.init_block_table_layout_tensors()

    def _guarded(self, table: torch.Tensor) -> torch.Tensor:
        size, room = table.numel(), 64
        whole = torch.full((size + 2 * room,), self.MARK, dtype=table.dtype, device=self.device)
        self._guards += [whole[:room], whole[room + size :]]
        inner = whole[room : room + size].view(table.shape)
        inner.copy_(table)
        return inner

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        if not self.place.is_capturing():
            assert all(bool((guard == self.MARK).all()) for guard in self._guards)
