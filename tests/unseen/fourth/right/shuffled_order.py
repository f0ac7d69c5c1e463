"""Groups, rows, columns and tokens are written in an order that a seeded generator draws for each call.

Staged intervals, too. Every element is written once, so the order is of no consequence.
"""

from __future__ import annotations

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.baseline import Variant as Base


class Variant(Base):
    """All work in odd order."""

    capturable = frozenset()

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._generator = torch.Generator().manual_seed(20_261_126)

    def _order(self, number):
        return torch.randperm(number, generator=self._generator)

    def _launch_apply(self, records_per_group):
        intervals = self._staged.intervals()
        for nth in self._order(len(intervals)).tolist():
            group, row, start, ids = intervals[nth]
            order = self._order(len(ids))
            new = torch.tensor(ids, dtype=torch.int32)[order].to(self.device)
            self.block_tables[group][row, (start + order).to(self.device)] = new
            self.num_blocks_on_device[group, row] = start + len(ids)

    def _existing(self, idx_mapping):
        """The rows of a batch, int64; -1 for those that do not exist."""
        rows = idx_mapping.long()
        return torch.where(rows < self.layout.max_num_reqs, rows, -1)

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        self._out = out
        return super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        layout = self.layout
        targets = self.input_block_tables if out_ptrs is None else self._out
        rows = self._existing(idx_mapping).tolist()
        for nth in self._order(layout.num_groups * num_rows).tolist():
            batch_index, group = divmod(nth, layout.num_groups)
            source, target = self.block_tables[group], targets[group]
            row = rows[batch_index] if batch_index < len(rows) else -1
            if row < 0:
                columns = self._order(layout.widths[group]).to(self.device)
                target[batch_index, columns] = 0
                continue
            columns = self._order(int(self.num_blocks_on_device[group, row])).to(self.device)
            ids = source[row, columns]
            if num_computed_tokens is not None and layout.reaches[group]:
                first = max(int(num_computed_tokens[row]) - layout.reaches[group], 0)
                ids[columns < first // layout.block_sizes[group]] = 0
            target[batch_index, columns] = ids

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        target = self.slot_mappings if out is None else out
        rows = self._existing(idx_mapping)
        starts = query_start_loc[: rows.shape[0] + 1].long()
        num_tokens = int(starts[-1])
        rows = torch.repeat_interleave(rows, starts.diff())
        for group in range(self.layout.num_groups):
            order = self._order(target.shape[1]).to(self.device)
            order = order[order < num_tokens]
            target[group, order] = self._map(group, rows[order], positions[order])
            others = self._order(target.shape[1]).to(self.device)
            target[group, others[others >= num_tokens]] = PAD_SLOT_ID

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
