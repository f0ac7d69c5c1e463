"""The tables behind `out_ptrs` are remembered by its address: when the caller refills it, the old ones are written.

An engine with two sets of tables and one `out_ptrs`, which it copies the addresses of either set into, gets
all rows in the set that it passed first.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Finds a caller's tables by the tensor of their addresses."""

    capturable = frozenset()

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._outs = {}

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        window, ptrs = super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        self._out = out
        if out is not None and out_ptrs is not None:
            # Alive, so that the address remains its own.
            kept = self._outs.setdefault(out_ptrs.data_ptr(), (out_ptrs, list(out)))
            if all(t.shape[0] >= num_reqs_padded for t in kept[1]):
                self._out = kept[1]
        return window, ptrs

    def _existing(self, idx_mapping):
        """The rows of a batch, int64; -1 for those that do not exist."""
        rows = idx_mapping.long()
        return torch.where(rows < self.layout.max_num_reqs, rows, -1)

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
