"""What touches the device is done by a thread of its own for each call, which is joined before it returns.

The thread works on the stream that was current in the caller's thread, and what it raises is raised there.
"""

from __future__ import annotations

import threading

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.baseline import Variant as Base


class Variant(Base):
    """Separate operations in torch, in threads."""

    capturable = frozenset()

    def _elsewhere(self, call, *arguments):
        caught = []
        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None

        def work():
            try:
                if stream is None:
                    call(*arguments)
                else:
                    with torch.cuda.stream(stream):
                        call(*arguments)
            except BaseException as error:  # raised in the caller's thread
                caught.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if caught:
            raise caught[0]

    def _launch_apply(self, records_per_group):
        self._elsewhere(self._apply, records_per_group)

    def _launch_gather(self, *arguments):
        self._elsewhere(self._gather, *arguments)

    def _launch_slots(self, *arguments):
        self._elsewhere(self._all_slots, *arguments)

    def restore(self, state):
        self._elsewhere(super().restore, state)

    def _apply(self, records_per_group):
        for group, row, start, ids in self._staged.intervals():
            self.num_blocks_on_device[group, row] = start + len(ids)
            new = torch.tensor(ids, dtype=torch.int32, device=self.device)
            self.block_tables[group][row, start : start + len(ids)] = new

    def _existing(self, idx_mapping):
        """The rows of a batch, int64; -1 for those that do not exist."""
        rows = idx_mapping.long()
        return torch.where(rows < self.layout.max_num_reqs, rows, -1)

    def _options(self, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        self._out = out
        return super()._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)

    def _gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
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

    def _all_slots(self, idx_mapping, query_start_loc, positions, out):
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
