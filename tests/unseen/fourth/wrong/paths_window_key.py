"""First columns of windows are computed once for each reach: groups with that reach and other blocks get them, too.

Two groups with a reach of 16 tokens, one with blocks of 4 and one with blocks of 16: the second has columns
zeroed that its window reaches.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Groups with the same window share its columns."""

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
        self._found = {}
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
        if reach not in self._found:
            computed = num_computed_tokens[rows.clamp(min=0)].long()
            tokens = (computed - reach).clamp(min=0) if reach else torch.zeros_like(rows)
            self._found[reach] = tokens // self.layout.block_sizes[group]
        return self._found[reach]
