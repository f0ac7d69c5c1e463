"""Fault: num_dirty_rows is set before num_reqs_padded is checked.

Seen: a gather of one request that is refused for num_reqs_padded = max_num_reqs + 1 changes
num_dirty_rows; the next one does not zero the rows of the batch before.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.device_tables import DeviceBlockTables, arguments


class Variant(DeviceBlockTables):
    """Notes the batch first."""

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        if out is None and out_ptrs is None:
            num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)
            dirty, self.num_dirty_rows = self.num_dirty_rows, num_reqs
            arguments.check_rows(self.layout, num_reqs, num_reqs_padded)
            self.num_dirty_rows = dirty
        return super().gather_block_tables(
            idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
        )
