"""Fault: slots alternate between two buffers from the third call on.

Seen: slot_mappings has another address than before, and views that were returned earlier are
not filled any more.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import TableLayout


class Variant(DeviceBlockTables):
    """The last step may still be read while the next one is written."""

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._spare = self.slot_mappings.clone()
        self._calls = 0

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        self._calls += 1
        if out is None and self._calls > 2:
            self.slot_mappings, self._spare = self._spare, self.slot_mappings
            self.descriptors.copy_(self._describe_groups())
            self._make_views()
        super()._launch_slots(idx_mapping, query_start_loc, positions, out)

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        super().compute_slot_mappings(
            idx_mapping, query_start_loc, positions, num_tokens_padded, out
        )
        return (self.slot_mappings if out is None else out)[:, :num_tokens_padded]
