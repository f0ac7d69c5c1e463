"""Gather goes by source rows, through the inverse of the mapping: of a row that comes twice, one copy is missing.

Each source row is read once, and copied to the place where the mapping has it. If it has it twice, only one
batch index gets the row, and the other keeps what it held.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Reads source rows in order, once."""

    capturable = frozenset()

    def _existing(self, idx_mapping):
        """The rows of a batch, int64; -1 for those that do not exist."""
        rows = idx_mapping.long()
        return torch.where(rows < self.layout.max_num_reqs, rows, -1)

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        self._out = out
        return super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        targets = self.input_block_tables if out_ptrs is None else self._out
        mapping = self._existing(idx_mapping)
        num_reqs = mapping.shape[0]
        places = torch.full((self.layout.max_num_reqs,), -1, dtype=torch.int64, device=self.device)
        indices = torch.arange(num_reqs, device=self.device)
        places[mapping[mapping >= 0]] = indices[mapping >= 0]
        rows = (places >= 0).nonzero()[:, 0]
        places = places[rows]
        for group, (source, target) in enumerate(zip(self.block_tables, targets, strict=True)):
            columns = torch.arange(source.shape[1], device=self.device)
            live = columns < self.num_blocks_on_device[group][rows][:, None]
            ids = source[rows]
            if num_computed_tokens is not None:
                first = self._first_columns(group, rows, num_computed_tokens)
                ids = torch.where(columns >= first[:, None], ids, 0)
            target[places] = torch.where(live, ids, target[places])
            target[:num_reqs][mapping < 0] = 0
            target[num_reqs:num_rows] = 0

    def _first_columns(self, group, rows, num_computed_tokens):
        reach = self.layout.reaches[group]
        if not reach:
            return torch.zeros_like(rows)
        computed = num_computed_tokens[rows.clamp(min=0)].long()
        return (computed - reach).clamp(min=0) // self.layout.block_sizes[group]
