"""Fault: compute_slot_mappings notes its own batch as the number of dirty rows.

Seen: after a gather of many rows, slots alone for fewer, and a gather for fewer: the rows
between are not zeroed.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """Keeps the size of the batch up to date in every operation."""

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        views = super().compute_slot_mappings(
            idx_mapping, query_start_loc, positions, num_tokens_padded, out
        )
        self.num_dirty_rows = min(self.num_dirty_rows, idx_mapping.numel())
        return views
