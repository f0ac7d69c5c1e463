"""Right: gathers into scratch tables first, and copies whole rows into the input tables after
that.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import TableLayout


class Variant(DeviceBlockTables):
    """Two buffers for each table."""

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._scratch = [torch.zeros_like(table) for table in self.input_block_tables]
        addresses = [table.data_ptr() for table in self._scratch]
        self._scratch_ptrs = torch.tensor(addresses, device=self.device)

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
        for scratch, table in zip(self._scratch, self.input_block_tables, strict=True):
            scratch[:num_rows].copy_(table[:num_rows])  # what is to be kept
        ptrs = self._scratch_ptrs
        super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, ptrs)
        for scratch, table in zip(self._scratch, self.input_block_tables, strict=True):
            table[:num_rows].copy_(scratch[:num_rows])
