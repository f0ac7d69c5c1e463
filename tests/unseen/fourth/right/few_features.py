"""Only what the plain path and dummy requests need, with signatures that know no option; rows in sorted order.

It has neither `append_many` nor methods with optional arguments. Source rows are read in rising order, and
each that comes twice is read once.
"""

from __future__ import annotations

import numpy as np
import torch

from bt_kernels.device_tables import arguments
from bt_kernels.interface import BlockTableOperations
from bt_kernels.layout import DUMMY_REQUESTS, INT32_MAX, INT32_MIN, PAD_SLOT_ID, index_of


class Variant(BlockTableOperations):
    """Plain steps and dummies."""

    features = frozenset({DUMMY_REQUESTS})

    def __init__(self, layout, device):
        self.layout = layout
        rows = layout.max_num_reqs
        shapes = [(rows, width) for width in layout.widths]
        self.block_tables = [
            torch.zeros(shape, dtype=torch.int32, device=device) for shape in shapes
        ]
        self.input_block_tables = [
            torch.zeros(shape, dtype=torch.int32, device=device) for shape in shapes
        ]
        self.device = self.block_tables[0].device
        slots = (layout.num_groups, layout.max_num_batched_tokens)
        self.slot_mappings = torch.full(slots, PAD_SLOT_ID, dtype=torch.int64, device=device)
        self.num_blocks = np.zeros((layout.num_groups, rows), dtype=np.int32)
        self.num_dirty_rows = 0
        self._applied = np.zeros_like(self.num_blocks)
        self._staged = {}

    # ---- operation 1 and 2

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        row, chunks = self._read(req_index, new_block_ids)
        for group, ids in enumerate(chunks):
            before = 0 if overwrite else int(self.num_blocks[group, row])
            if before + len(ids) > self.layout.widths[group]:
                raise ValueError(
                    f"row {row} of group {group} would have {before + len(ids)} blocks; its table "
                    f"is {self.layout.widths[group]} columns wide"
                )
        for group, ids in enumerate(chunks):
            before = 0 if overwrite else int(self.num_blocks[group, row])
            if overwrite:
                self._staged[group, row] = (0, [])
            if len(ids):
                self._staged.setdefault((group, row), (before, []))[1].append(ids)
            self.num_blocks[group, row] = before + len(ids)

    def _read(self, req_index, new_block_ids):
        """The row as an integer, and its ids as they are kept."""
        row = index_of(req_index)
        if row is None or not 0 <= row < self.layout.max_num_reqs:
            raise ValueError(f"req_index is {req_index!r}; max_num_reqs {self.layout.max_num_reqs}")
        try:
            lists = list(new_block_ids)
            chunks = [self._kept(ids) for ids in lists]
        except TypeError:
            raise ValueError("new_block_ids is no list of lists of integers") from None
        if len(chunks) != self.layout.num_groups:
            raise ValueError(f"{len(chunks)} lists for {self.layout.num_groups} groups")
        return row, chunks

    def _kept(self, ids):
        """Ids as a new array of int32."""
        if len(ids) == 0:
            return np.zeros(0, dtype=np.int32)
        kept = np.empty(len(ids), dtype=np.int32)
        for place, value in enumerate(ids):
            number = index_of(value)
            if number is None or not INT32_MIN <= number <= INT32_MAX:
                raise ValueError(
                    f"a block id is {value!r}; expected an integer from {INT32_MIN} to {INT32_MAX}"
                )
            kept[place] = 0 if self.redirect_writes_to_null_block else number
        return kept

    def apply_staged_writes(self):
        for (group, row), (start, chunks) in self._staged.items():
            for ids in chunks:
                new = torch.from_numpy(ids).to(self.device)
                self.block_tables[group][row, start : start + len(ids)] = new
                start += len(ids)
            self._applied[group, row] = start
        self._staged.clear()

    def restore(self, state):
        for mine, its in (
            (self.block_tables, state.block_tables),
            (self.input_block_tables, state.input_block_tables),
            ([self.slot_mappings], [state.slot_mappings]),
        ):
            if [table.shape for table in mine] != [table.shape for table in its]:
                raise ValueError("the snapshot is of another layout")
        for mine, its in (
            (self.block_tables, state.block_tables),
            (self.input_block_tables, state.input_block_tables),
        ):
            for table, saved in zip(mine, its, strict=True):
                table.copy_(saved)
        self.slot_mappings.copy_(state.slot_mappings)
        self.num_blocks[:] = state.num_blocks
        self._applied[:] = state.num_blocks
        self.num_dirty_rows = int(state.num_dirty_rows)
        self._staged.clear()

    # ---- checks

    def _checked_gather(self, idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens):
        layout, device = self.layout, self.device
        num_reqs = arguments.check_mapping(layout, device, idx_mapping)
        arguments.check_rows(layout, num_reqs, num_reqs_padded)
        arguments.check_size(
            "num_dirty_rows", self.num_dirty_rows, layout.max_num_reqs, "max_num_reqs"
        )
        if num_computed_tokens is not None:
            arguments.check_computed(layout, device, num_computed_tokens)
        if out is not None:
            arguments.check_out(layout, device, out, out_ptrs, num_reqs_padded)
            arguments.check_apart(out, self.block_tables, self.input_block_tables)
            if out_ptrs is not None and self.validate:
                arguments.check_addresses(out, out_ptrs)
        elif out_ptrs is not None:
            raise ValueError("out_ptrs is given without out")
        if self.validate:
            arguments.check_rows_exist(layout, idx_mapping)
        return num_reqs

    def _checked_slots(self, idx_mapping, query_start_loc, positions, num_tokens_padded, out):
        layout, device = self.layout, self.device
        num_reqs = arguments.check_mapping(layout, device, idx_mapping)
        batch = (num_reqs, query_start_loc, positions)
        arguments.check_tokens(layout, device, *batch, num_tokens_padded, out)
        if self.validate:
            size = (self.slot_mappings if out is None else out).shape[1]
            arguments.check_rows_exist(layout, idx_mapping)
            arguments.check_token_ranges(*batch, size, num_tokens_padded)

    # ---- operations 3 to 6

    def gather_block_tables(self, idx_mapping, num_reqs_padded):
        self._checked_gather(idx_mapping, num_reqs_padded, None, None, None)
        return self._gather(idx_mapping, int(num_reqs_padded))

    def compute_slot_mappings(self, idx_mapping, query_start_loc, positions, num_tokens_padded):
        batch = (idx_mapping, query_start_loc, positions, num_tokens_padded)
        self._checked_slots(*batch, None)
        return self._map(*batch)

    def gather_and_compute_slot_mappings(
        self,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs_padded,
        num_tokens_padded,
    ):
        self._checked_gather(idx_mapping, num_reqs_padded, None, None, None)
        batch = (idx_mapping, query_start_loc, positions, num_tokens_padded)
        self._checked_slots(*batch, None)
        tables = self._gather(idx_mapping, int(num_reqs_padded))
        return tables, self._map(*batch)

    def prepare_step(
        self,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs_padded,
        num_tokens_padded,
    ):
        self._checked_gather(idx_mapping, num_reqs_padded, None, None, None)
        batch = (idx_mapping, query_start_loc, positions, num_tokens_padded)
        self._checked_slots(*batch, None)
        self.apply_staged_writes()
        tables = self._gather(idx_mapping, int(num_reqs_padded))
        return tables, self._map(*batch)

    def get_dummy_block_tables(self, num_reqs):
        arguments.check_size("num_reqs", num_reqs, self.layout.max_num_reqs, "max_num_reqs")
        num_reqs = int(num_reqs)
        for table in self.input_block_tables:
            table[: max(num_reqs, self.num_dirty_rows)] = 0
        self.num_dirty_rows = num_reqs
        return tuple(table[:num_reqs] for table in self.input_block_tables)

    def get_dummy_slot_mappings(self, num_tokens):
        limit = self.layout.max_num_batched_tokens
        arguments.check_size("num_tokens", num_tokens, limit, "max_num_batched_tokens")
        self.slot_mappings.fill_(PAD_SLOT_ID)
        return self.slot_mappings[:, :num_tokens]

    def _gather(self, idx_mapping, num_reqs_padded):
        rows = idx_mapping.long()
        rows = torch.where(rows < self.layout.max_num_reqs, rows, -1)
        num_reqs, end = rows.shape[0], max(num_reqs_padded, self.num_dirty_rows)
        unique, inverse = rows.unique(sorted=True, return_inverse=True)
        for group, (source, target) in enumerate(
            zip(self.block_tables, self.input_block_tables, strict=True)
        ):
            for nth, row in enumerate(unique.tolist()):
                places = (inverse == nth).nonzero()[:, 0]
                if row < 0:
                    target[places] = 0
                else:
                    length = int(self._applied[group, row])
                    target[places, :length] = source[row, :length]
            target[num_reqs:end] = 0
        self.num_dirty_rows = num_reqs
        return tuple(table[:num_reqs_padded] for table in self.input_block_tables)

    def _map(self, idx_mapping, query_start_loc, positions, num_tokens_padded):
        layout, rows = self.layout, idx_mapping.long()
        starts = query_start_loc[: rows.shape[0] + 1].tolist()
        self.slot_mappings.fill_(PAD_SLOT_ID)
        for batch_index, row in enumerate(rows.tolist()):
            tokens = slice(*starts[batch_index : batch_index + 2])
            if not 0 <= row < layout.max_num_reqs or tokens.stop == tokens.start:
                continue
            its = positions[tokens]
            for group, (size, width) in enumerate(
                zip(layout.block_sizes, layout.widths, strict=True)
            ):
                inside = (its >= 0) & (its < size * width)
                ids = self.block_tables[group][row][torch.where(inside, its, 0) // size].long()
                slots = torch.where(inside, ids * size + its % size, PAD_SLOT_ID)
                self.slot_mappings[group, tokens] = slots
        return self.slot_mappings[:, :num_tokens_padded]
