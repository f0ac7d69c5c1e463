"""Views of inputs in numpy are remembered by address and length, but not by dtype.

An engine that has one buffer for `idx_mapping`, of int64 in one step and reinterpreted as int32 in the
next, gets rows that are every other half of the numbers.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


KEPT = 500


class Variant(Base):
    """Makes views of buffers that come again only once."""

    capturable = frozenset()

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._known = OrderedDict()

    def _view(self, tensor):
        if tensor.device.type != "cpu":
            return tensor.cpu().numpy()
        key = (tensor.data_ptr(), tensor.numel())
        if key not in self._known:
            self._known[key] = tensor.numpy()  # keeps its memory
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return self._known[key]

    def _existing(self, idx_mapping):
        rows = torch.from_numpy(self._view(idx_mapping).astype(np.int64)).to(self.device)
        return torch.where(rows < self.layout.max_num_reqs, rows, -1)

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        self._out = out
        return super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        targets = self.input_block_tables if out_ptrs is None else self._out
        rows = self._existing(idx_mapping)
        num_reqs = rows.shape[0]
        for group, (source, target) in enumerate(zip(self.block_tables, targets, strict=True)):
            lengths = torch.where(rows >= 0, self._lengths(group)[rows.clamp(min=0)], 0)
            columns = torch.arange(source.shape[1], device=self.device)
            live = columns < lengths[:, None]
            ids = torch.where(live, source[rows.clamp(min=0)], 0)
            if num_computed_tokens is not None:
                first = self._first_columns(group, rows, num_computed_tokens)
                ids = torch.where(columns >= first[:, None], ids, 0)
            written = live | (rows < 0)[:, None]
            target[:num_reqs] = torch.where(written, ids, target[:num_reqs])
            target[num_reqs:num_rows] = 0

    def _lengths(self, group):
        return self.num_blocks_on_device[group]

    def _first_columns(self, group, rows, num_computed_tokens):
        reach = self.layout.reaches[group]
        if not reach:
            return torch.zeros_like(rows)
        computed = num_computed_tokens[rows.clamp(min=0)].long()
        return (computed - reach).clamp(min=0) // self.layout.block_sizes[group]

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
