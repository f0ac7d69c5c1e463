"""Tokens find their request by increments at the starts, which index assignment does not add up.

`steps[starts] += 1` adds 1 even where two requests start at the same token. So after a request without
tokens, all further tokens are mapped by the row of the request before their own.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.baseline import Variant as Base


class Variant(Base):
    """Requests of tokens by a running sum."""

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
        if num_tokens:
            steps = torch.zeros(num_tokens, dtype=torch.int64, device=self.device)
            later = starts[1:-1]
            steps[later[later < num_tokens]] += 1
            rows = rows[steps.cumsum(0)]
        for group in range(self.layout.num_groups):
            if num_tokens:
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
