"""Padding is a grid of 16 programs of 1,024 slots: slots that lie further behind the tokens keep what they held.

After a step of 20,000 tokens, one of 8 pads only 16,384 slots, and the last 3,608 slots still name blocks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


PROGRAMS, BLOCK = 16, 1024


@triton.jit(do_not_specialize=["first", "stride", "end"])
def pad_kernel(slots, first, stride, end, PAD: tl.constexpr, BLOCK: tl.constexpr):
    """A block of slots behind the tokens, for program `(group, block)`."""
    places = first + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = slots + tl.program_id(0).to(tl.int64) * stride
    tl.store(row + places, tl.full([BLOCK], PAD, dtype=tl.int64), mask=places < end)


class Variant(Base):
    """Slots in torch, padding in a kernel of its own."""

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
            target[group, :num_tokens] = self._map(group, rows, positions[:num_tokens])
        self.launch(
            pad_kernel,
            (self.layout.num_groups, PROGRAMS, 1),
            (target, num_tokens, target.stride(0), target.shape[1]),
            (PAD_SLOT_ID, BLOCK),
            (target,),
        )

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
