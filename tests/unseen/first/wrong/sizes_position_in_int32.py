"""Fault: positions are narrowed to int32 before anything is compared.

Seen: a position of 2^32 + p with p inside the row has the slot of p and not PAD.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import PAD_SLOT_ID


class Variant(DeviceBlockTables):
    """Slots by torch with half the traffic for positions."""

    capturable = frozenset({"gather_block_tables"})

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        slots = self.slot_mappings if out is None else out
        starts = query_start_loc[: idx_mapping.numel() + 1].long()
        num_tokens = int(starts[-1])
        rows = torch.repeat_interleave(idx_mapping.long(), starts.diff())
        slots[:, num_tokens:] = PAD_SLOT_ID
        for group in range(self.layout.num_groups):
            slots[group, :num_tokens] = self._slots_of(group, rows, positions[:num_tokens])

    def _slots_of(self, group: int, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        layout, table = self.layout, self.block_tables[group]
        size, ranks = layout.block_sizes[group], layout.cp_sizes[group]
        span = size * ranks
        positions = positions.to(torch.int32).long()
        inside = (rows >= 0) & (positions >= 0) & (positions < span * layout.widths[group])
        inside &= layout.slot_mapping_enabled[group]
        positions = torch.where(inside, positions, 0)
        column, offset = positions // span, positions % span
        if ranks > 1:
            turn = offset // layout.cp_interleave
            inside &= turn % ranks == layout.cp_rank
            offset = turn // ranks * layout.cp_interleave + offset % layout.cp_interleave
        block_ids = table[rows.clamp(min=0), column]
        return torch.where(inside, block_ids.long() * size + offset, PAD_SLOT_ID)
