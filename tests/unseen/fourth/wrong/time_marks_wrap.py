"""Rows that were just written are told by a mark with the step's low six bits, which come again 64 steps later.

Gather takes the length of a marked row from its mark. A restore puts back lengths, and moves on to the
next step in place of clearing the marks. So 64 applies with writes after the one that wrote a row, if a
restore came between, gather takes the length that the row had before the restore.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.layout import FEATURES
from bt_kernels.variants.baseline import Variant as Base


STEPS = 1 << 6


class Variant(Base):
    """Marks of rows, as a launch for a whole step would use them."""

    features = FEATURES
    capturable = frozenset()
    _step = 0

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        shape = (layout.num_groups, layout.max_num_reqs)
        self._marked = torch.full(shape, -1, dtype=torch.int32, device=self.device)
        self._ends = torch.zeros(shape, dtype=torch.int32, device=self.device)

    def _launch_apply(self, records_per_group):
        super()._launch_apply(records_per_group)
        self._step = (self._step + 1) % STEPS
        for group, row, start, ids in self._staged.intervals():
            self._marked[group, row] = self._step
            self._ends[group, row] = start + len(ids)

    def restore(self, state):
        super().restore(state)
        self._step = (self._step + 1) % STEPS  # no mark is of this one

    def _publish_for_replay(self, *arguments):
        super()._publish_for_replay(*arguments)
        self._marked.fill_(-1)  # a replay makes none

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
        is_marked = self._marked[group] == self._step
        return torch.where(is_marked, self._ends[group], self.num_blocks_on_device[group])

    def _first_columns(self, group, rows, num_computed_tokens):
        reach = self.layout.reaches[group]
        if not reach:
            return torch.zeros_like(rows)
        computed = num_computed_tokens[rows.clamp(min=0)].long()
        return (computed - reach).clamp(min=0) // self.layout.block_sizes[group]
