"""Slots of a combined call come from the rows just gathered, which lack what the row does not own.

A token past the row's blocks, as a drafter has it, gets a slot of whatever the batch index held before; and
a token before the sliding window gets one of block 0. Alone, slots come from the source table.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Reads rows where they are in the cache already."""

    capturable = frozenset()
    _gathered = None

    def gather_block_tables(self, idx_mapping, num_reqs_padded, *arguments, **options):
        views = super().gather_block_tables(idx_mapping, num_reqs_padded, *arguments, **options)
        self._last = views
        return views

    def gather_and_compute_slot_mappings(self, *arguments, **options):
        self._gathered = True
        try:
            return super().gather_and_compute_slot_mappings(*arguments, **options)
        finally:
            self._gathered = None

    def _existing(self, idx_mapping):
        """The rows of a batch, int64; -1 for those that do not exist."""
        rows = idx_mapping.long()
        return torch.where(rows < self.layout.max_num_reqs, rows, -1)

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        target = self.slot_mappings if out is None else out
        rows = self._existing(idx_mapping)
        starts = query_start_loc[: rows.shape[0] + 1].long()
        num_tokens = int(starts[-1])
        indices = torch.arange(rows.shape[0], device=self.device)
        self._indices = torch.repeat_interleave(indices, starts.diff())
        rows = torch.repeat_interleave(rows, starts.diff())
        for group in range(self.layout.num_groups):
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
        table, its_rows = self.block_tables[group], rows.clamp(min=0)
        if self._gathered:
            table, its_rows = self._last[group], self._indices
        ids = table[its_rows, columns.clamp(0, last)].long()
        return torch.where(inside, ids * size + offsets, PAD_SLOT_ID)
