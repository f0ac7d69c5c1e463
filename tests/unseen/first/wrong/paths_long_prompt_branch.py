"""Fault: the branch for a single request with 64 tokens or more reads the block id of every block
once, and takes positions to be consecutive from the first.

Seen: one request with 64 or more tokens at positions with gaps or in falling order has the
slots of consecutive ones.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import PAD_SLOT_ID


class Variant(DeviceBlockTables):
    """A long prompt needs its first position only."""

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
            tokens = positions[:num_tokens]
            if idx_mapping.numel() == 1 and num_tokens >= 64:
                tokens = tokens[0] + torch.arange(num_tokens, device=self.device)
            slots[group, :num_tokens] = self._slots_of(group, rows, tokens)

    def _slots_of(self, group: int, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        layout, table = self.layout, self.block_tables[group]
        size, ranks = layout.block_sizes[group], layout.cp_sizes[group]
        span = size * ranks
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
