"""Below and above certain sizes rows and tokens go different ways: by element, by row, or in vectors.

Thresholds are odd numbers: 3 requests, 11 columns, 5 and 29 tokens. All ways do the same.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


FEW_REQUESTS, FEW_COLUMNS, FEW_TOKENS, MANY_TOKENS = 3, 11, 5, 29


class Variant(Base):
    """Ways by size."""

    capturable = frozenset()

    def _launch_gather(self, *arguments):
        if arguments[0].shape[0] >= FEW_REQUESTS:
            self._in_vectors(*arguments)
        elif max(self.layout.widths) < FEW_COLUMNS:
            self._by_element(*arguments)
        else:
            super()._launch_gather(*arguments)

    def _by_element(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        targets = self.input_block_tables if out_ptrs is None else self._out
        rows = self._existing(idx_mapping).tolist()
        for group, (source, target) in enumerate(zip(self.block_tables, targets, strict=True)):
            reach, size = self.layout.reaches[group], self.layout.block_sizes[group]
            for batch_index in range(num_rows):
                row = rows[batch_index] if batch_index < len(rows) else -1
                if row < 0:
                    target[batch_index] = 0
                    continue
                first = 0
                if num_computed_tokens is not None and reach:
                    first = max(int(num_computed_tokens[row]) - reach, 0) // size
                for column in range(int(self.num_blocks_on_device[group, row])):
                    target[batch_index, column] = source[row, column] if column >= first else 0

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        num_tokens = int(query_start_loc[idx_mapping.shape[0]])
        if FEW_TOKENS < num_tokens < MANY_TOKENS:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
        else:
            self._slots_in_vectors(idx_mapping, query_start_loc, positions, out)

    def _existing(self, idx_mapping):
        """The rows of a batch, int64; -1 for those that do not exist."""
        rows = idx_mapping.long()
        return torch.where(rows < self.layout.max_num_reqs, rows, -1)

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        self._out = out
        return super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)

    def _in_vectors(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
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

    def _slots_in_vectors(self, idx_mapping, query_start_loc, positions, out):
        target = self.slot_mappings if out is None else out
        rows = self._existing(idx_mapping)
        starts = query_start_loc[: rows.shape[0] + 1].long()
        num_tokens = int(starts[-1])
        rows = torch.repeat_interleave(rows, starts.diff())
        for group in range(self.layout.num_groups):
            if num_tokens > FEW_TOKENS:
                target[group, :num_tokens] = self._map(group, rows, positions[:num_tokens])
                continue
            for token in range(num_tokens):
                one = slice(token, token + 1)
                target[group, one] = self._map(group, rows[one], positions[one])
        target[:, num_tokens:] = PAD_SLOT_ID

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
