"""Right: one launch for each written row, and one for each row that is gathered."""

from __future__ import annotations

import torch

from bt_kernels import launches
from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """Many small launches."""

    def _launch_apply(self, records_per_group: list[int]) -> None:
        for record in range(sum(records_per_group)):
            launches.apply_writes(self, self._ring.current, record, 1)

    def _launch_gather(
        self,
        idx_mapping: torch.Tensor,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
    ) -> None:
        num_reqs = idx_mapping.shape[0]
        if out_ptrs is not None or not 0 < num_reqs < num_rows:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        super()._launch_gather(idx_mapping, num_reqs, num_computed_tokens, out_ptrs)
        for table in self.input_block_tables:
            table[num_reqs:num_rows].zero_()
