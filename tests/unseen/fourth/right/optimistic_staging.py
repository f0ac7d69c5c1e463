"""Writes are staged before they are checked, and taken back exactly if something is wrong with them.

A journal holds, in order, what each change replaced. Applying walks through the changes of a row at once.
"""

from __future__ import annotations

import numpy as np
import torch

from bt_kernels.device_tables import arguments
from bt_kernels.interface import BlockTableOperations
from bt_kernels.layout import FEATURES, INT32_MAX, INT32_MIN, PAD_SLOT_ID, index_of


class Variant(BlockTableOperations):
    """Staging as a transaction."""

    features = FEATURES

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
        self.append_many([req_index], [new_block_ids], [overwrite])

    def append_many(self, req_indices, new_block_ids, overwrite):
        journal = []
        try:
            for row, lists, replaces in zip(req_indices, new_block_ids, overwrite, strict=True):
                self._stage(journal, row, lists, replaces)
        except Exception as error:
            for group, row, count, interval in reversed(journal):
                self.num_blocks[group, row] = count
                if interval is None:
                    del self._staged[group, row]
                else:
                    self._staged[group, row] = interval
            if isinstance(error, (ValueError, TypeError, OverflowError)):
                raise ValueError(f"nothing was staged: {error}") from None
            raise

    def _stage(self, journal, row, lists, replaces):
        row = int(np.int64(row.__index__() if hasattr(row, "__index__") else "no row"))
        if not 0 <= row < self.layout.max_num_reqs:
            raise ValueError(f"req_index is {row}; max_num_reqs {self.layout.max_num_reqs}")
        for group, ids in enumerate(lists):
            if group >= self.layout.num_groups:
                raise ValueError(f"more lists than {self.layout.num_groups} groups")
            count = int(self.num_blocks[group, row])
            interval = self._staged.get((group, row))
            start, before = (0, ()) if replaces else interval or (count, ())
            end = (0 if replaces else count) + len(ids)
            if replaces or len(ids) or interval is not None:
                journal.append((group, row, count, interval))
                self._staged[group, row] = start, (*before, *ids)
                self.num_blocks[group, row] = min(end, INT32_MAX)
            if end > self.layout.widths[group]:
                raise ValueError(
                    f"row {row} of group {group} would have {end} blocks; its table is "
                    f"{self.layout.widths[group]} columns wide"
                )
            kept = []
            for value in ids:
                number = index_of(value)
                if number is None or not INT32_MIN <= number <= INT32_MAX:
                    raise ValueError(
                        f"a block id of group {group} is {value!r}; expected an integer from "
                        f"{INT32_MIN} to {INT32_MAX}"
                    )
                kept.append(0 if self.redirect_writes_to_null_block else number)
            if kept:
                self._staged[group, row] = start, (*before, *kept)
        if len(lists) != self.layout.num_groups:
            raise ValueError(f"{len(lists)} lists for {self.layout.num_groups} groups")

    def apply_staged_writes(self):
        for (group, row), (start, ids) in self._staged.items():
            new = torch.tensor(ids, dtype=torch.int32, device=self.device)
            self.block_tables[group][row, start : start + len(ids)] = new
        self._applied[:] = self.num_blocks
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

    def gather_block_tables(
        self, idx_mapping, num_reqs_padded, out=None, out_ptrs=None, num_computed_tokens=None
    ):
        self._checked_gather(idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens)
        return self._gather(idx_mapping, int(num_reqs_padded), out, num_computed_tokens)

    def compute_slot_mappings(
        self, idx_mapping, query_start_loc, positions, num_tokens_padded, out=None
    ):
        batch = (idx_mapping, query_start_loc, positions, num_tokens_padded, out)
        self._checked_slots(*batch)
        return self._map(*batch)

    def gather_and_compute_slot_mappings(
        self,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs_padded,
        num_tokens_padded,
        *,
        out=None,
        out_ptrs=None,
        num_computed_tokens=None,
        slots_out=None,
    ):
        self._checked_gather(idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens)
        batch = (idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out)
        self._checked_slots(*batch)
        tables = self._gather(idx_mapping, int(num_reqs_padded), out, num_computed_tokens)
        return tables, self._map(*batch)

    def prepare_step(
        self,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs_padded,
        num_tokens_padded,
        *,
        out=None,
        out_ptrs=None,
        num_computed_tokens=None,
        slots_out=None,
    ):
        self._checked_gather(idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens)
        batch = (idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out)
        self._checked_slots(*batch)
        self.apply_staged_writes()
        tables = self._gather(idx_mapping, int(num_reqs_padded), out, num_computed_tokens)
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

    def _existing(self, idx_mapping):
        """The rows of a batch, int64; -1 for those that do not exist."""
        rows = idx_mapping.long()
        return torch.where(rows < self.layout.max_num_reqs, rows, -1)

    def _gather(self, idx_mapping, num_reqs_padded, out, num_computed_tokens):
        targets = self.input_block_tables if out is None else out
        num_rows = max(num_reqs_padded, self.num_dirty_rows if out is None else 0)
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
        if out is None:
            self.num_dirty_rows = num_reqs
        return tuple(table[:num_reqs_padded] for table in targets)

    def _lengths(self, group):
        return torch.from_numpy(self._applied[group].copy()).to(self.device)

    def _first_columns(self, group, rows, num_computed_tokens):
        reach = self.layout.reaches[group]
        if not reach:
            return torch.zeros_like(rows)
        computed = num_computed_tokens[rows.clamp(min=0)].long()
        return (computed - reach).clamp(min=0) // self.layout.block_sizes[group]

    def _map(self, idx_mapping, query_start_loc, positions, num_tokens_padded, out):
        target = self.slot_mappings if out is None else out
        rows = self._existing(idx_mapping)
        starts = query_start_loc[: rows.shape[0] + 1].long()
        num_tokens = int(starts[-1])
        rows = torch.repeat_interleave(rows, starts.diff())
        for group in range(self.layout.num_groups):
            target[group, :num_tokens] = self._slots_of(group, rows, positions[:num_tokens])
            target[group, num_tokens:] = PAD_SLOT_ID
        return target[:, :num_tokens_padded]

    def _slots_of(self, group, rows, positions):
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
