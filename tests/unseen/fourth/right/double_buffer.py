"""Slots and rows are made in one of two back buffers in turn, which exist once they are needed, and then copied.

A result is complete before the first element of an output changes. Buffers grow as a call needs it, and
are forgotten when they are much larger than that.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Back buffers of each kind, allocated late."""

    capturable = frozenset()
    _turn = 0

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._backs = {}

    def _back(self, kind, size, dtype):
        """A buffer that was not the last one of its kind, of `size` elements with old contents."""
        self._turn ^= 1
        key = (kind, self._turn)
        back = self._backs.get(key)
        if back is None or not size <= back.numel() <= 4 * size + 64:
            back = self._backs[key] = torch.full((size + 3,), 99, dtype=dtype, device=self.device)
        return back[:size]

    def _existing(self, idx_mapping):
        """The rows of a batch, int64; -1 for those that do not exist."""
        rows = idx_mapping.long()
        return torch.where(rows < self.layout.max_num_reqs, rows, -1)

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        self._out = out
        return super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        targets = self.input_block_tables if out_ptrs is None else self._out
        rows = self._existing(idx_mapping)
        num_reqs = rows.shape[0]
        for group, (source, target) in enumerate(zip(self.block_tables, targets, strict=True)):
            width = source.shape[1]
            back = self._back("rows", num_rows * width, torch.int32).view(num_rows, width)
            back.copy_(target[:num_rows])
            back[num_reqs:].zero_()
            lengths = self.num_blocks_on_device[group].tolist()
            for batch_index, row in enumerate(rows.tolist()):
                if row < 0:
                    back[batch_index].zero_()
                    continue
                length = lengths[row]
                back[batch_index, :length] = source[row, :length]
                if num_computed_tokens is not None and self.layout.reaches[group]:
                    first = int(num_computed_tokens[row]) - self.layout.reaches[group]
                    first = max(first, 0) // self.layout.block_sizes[group]
                    back[batch_index, : min(first, length)] = 0
            target[:num_rows] = back

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        target = self.slot_mappings if out is None else out
        rows = self._existing(idx_mapping)
        starts = query_start_loc[: rows.shape[0] + 1].long()
        num_tokens = int(starts[-1])
        rows = torch.repeat_interleave(rows, starts.diff())
        for group in range(self.layout.num_groups):
            back = self._back("slots", target.shape[1], torch.int64)
            back[:num_tokens] = self._map(group, rows, positions[:num_tokens])
            back[num_tokens:] = PAD_SLOT_ID
            target[group] = back

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
