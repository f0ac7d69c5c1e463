"""Division by a block size that is no power of two is a multiplication by 2^32 / size, off for far positions.

The rounded factor is exact only while position times its error stays below 2^32: with blocks of 544
tokens, the last ones of blocks from position 14,913,215 on get the next block, and a slot below it. Small
block sizes are always right, as positions from 2^29 on are divided.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.baseline import Variant as Base


SHIFT = 32


class Variant(Base):
    """Slots without a division."""

    capturable = frozenset()

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._factors = [(1 << SHIFT) // size + 1 for size in layout.tokens_per_block]

    def _divide(self, group, positions):
        size = self.layout.tokens_per_block[group]
        if size & (size - 1) == 0:
            return positions >> size.bit_length() - 1
        # The product has to fit; further positions are rare, and divided.
        near = positions * self._factors[group] >> SHIFT
        far = torch.div(positions, size, rounding_mode="floor")
        return torch.where((positions >= 0) & (positions >> 29 == 0), near, far)

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
            target[group, :num_tokens] = self._map(group, rows, positions[:num_tokens])
            target[group, num_tokens:] = PAD_SLOT_ID

    def _map(self, group, rows, positions):
        """The slots of tokens."""
        layout = self.layout
        size, ranks = layout.block_sizes[group], layout.cp_sizes[group]
        columns = self._divide(group, positions)
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
