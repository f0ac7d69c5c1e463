"""A group without slots is left out, as its slots are PAD from the start: a caller's `slots_out` keeps old ones.

The persistent slots of such a group never change, unless someone writes there. A buffer of the caller holds
whatever it held, where it has to be PAD.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Leaves out what has no slots."""

    capturable = frozenset()

    def _existing(self, idx_mapping):
        """The rows of a batch, int64; -1 for those that do not exist."""
        rows = idx_mapping.long()
        return torch.where(rows < self.layout.max_num_reqs, rows, -1)

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        target = self.slot_mappings if out is None else out
        rows = self._existing(idx_mapping)
        starts = query_start_loc[: rows.shape[0] + 1].long()
        num_tokens = int(starts[-1])
        rows = torch.repeat_interleave(rows, starts.diff())
        for group in range(self.layout.num_groups):
            if not self.layout.slot_mapping_enabled[group]:
                continue
            target[group, :num_tokens] = self._map(group, rows, positions[:num_tokens])
            target[group, num_tokens:] = PAD_SLOT_ID

    def _map(self, group, rows, positions):
        """The slots of tokens."""
        layout = self.layout
        size, ranks = layout.block_sizes[group], layout.cp_sizes[group]
        columns = torch.div(positions, size * ranks, rounding_mode="floor")
        offsets = positions - columns * (size * ranks)
        inside = (rows >= 0) & (columns >= 0) & (columns < layout.widths[group])
        if not layout.slot_mapping_enabled[group]:
            inside = torch.zeros_like(inside)
        if ranks > 1:
            turns = offsets // layout.cp_interleave
            inside &= turns % ranks == layout.cp_rank
            offsets = turns // ranks * layout.cp_interleave + offsets % layout.cp_interleave
        last = layout.widths[group] - 1
        ids = self.block_tables[group][rows.clamp(min=0), columns.clamp(0, last)].long()
        return torch.where(inside, ids * size + offsets, PAD_SLOT_ID)
