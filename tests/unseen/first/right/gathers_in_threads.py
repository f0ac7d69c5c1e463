"""Right: a thread for each group's gather, joined before the call returns."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from operator import index

import numpy as np
import torch

from bt_kernels.device_tables import arguments
from bt_kernels.interface import BlockTableOperations, TableState
from bt_kernels.layout import FEATURES, INT32_MAX, INT32_MIN, PAD_SLOT_ID, TableLayout
from bt_kernels.staging import (
    checked_row,
    refuse_append,
)


class Variant(BlockTableOperations):
    """Groups are gathered at the same time."""

    features = FEATURES

    def __init__(
        self,
        layout: TableLayout,
        device: torch.device | str,
        *,
        steps_in_flight: int | None = None,
        validate: bool = False,
    ) -> None:
        if steps_in_flight is not None and steps_in_flight < 1:
            raise ValueError(f"steps_in_flight is {steps_in_flight}; expected 1 or more")
        self.layout, self.validate = layout, validate
        rows = layout.max_num_reqs
        self.block_tables = [self._make(rows, w, device) for w in layout.widths]
        self.input_block_tables = [self._make(rows, w, device) for w in layout.widths]
        self.device = self.block_tables[0].device
        self.slot_mappings = torch.full(
            (layout.num_groups, layout.max_num_batched_tokens),
            PAD_SLOT_ID,
            dtype=torch.int64,
            device=device,
        )
        self.num_blocks = np.zeros((layout.num_groups, rows), dtype=np.int32)
        self.num_dirty_rows = 0
        self._applied = self.num_blocks.copy()
        self._staged: dict[tuple[int, int], tuple[int, list[int]]] = {}

    def _make(self, rows: int, width: int, device: torch.device | str) -> torch.Tensor:
        return torch.zeros(rows, width, dtype=torch.int32, device=device)

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        row = checked_row(self.layout, req_index)
        try:
            lists = [[index(value) for value in ids] for ids in new_block_ids]
        except TypeError:
            lists = []
        ends = [
            len(ids) + (0 if overwrite else int(owned))
            for ids, owned in zip(lists, self.num_blocks[:, row])  # noqa: B905
        ]
        if (
            len(lists) != self.layout.num_groups
            or any(end > width for end, width in zip(ends, self.layout.widths, strict=True))
            or any(not INT32_MIN <= value <= INT32_MAX for ids in lists for value in ids)
        ):
            refuse_append(self.layout, self.num_blocks, req_index, new_block_ids, overwrite)
        for group, ids in enumerate(lists):
            if self.redirect_writes_to_null_block:
                ids = [0] * len(ids)
            start, before = self._staged.get((group, row), (int(self.num_blocks[group, row]), []))
            if overwrite:
                self._staged[group, row] = (0, ids)
            elif ids:
                self._staged[group, row] = (start, before + ids)
            self.num_blocks[group, row] = ends[group]

    def apply_staged_writes(self) -> None:
        for (group, row), (start, ids) in self._staged.items():
            new = torch.tensor(ids, dtype=torch.int32, device=self.device)
            self.block_tables[group][row, start : start + len(ids)] = new
        self._staged.clear()
        self._applied = self.num_blocks.copy()

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        self._check_gather(idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens)
        rows = idx_mapping.tolist()
        targets = self.input_block_tables if out is None else out
        end = max(num_reqs_padded, self.num_dirty_rows) if out is None else num_reqs_padded
        for target in targets:
            target[len(rows) : end] = 0
        work = [
            threading.Thread(target=self._fill, args=(group, rows, target, num_computed_tokens))
            for group, target in enumerate(targets)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        if out is None:
            self.num_dirty_rows = len(rows)
        return tuple([target[:num_reqs_padded] for target in targets])

    def _check_gather(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None,
        out_ptrs: torch.Tensor | None,
        num_computed_tokens: torch.Tensor | None,
    ) -> None:
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded)
        if num_computed_tokens is not None:
            arguments.check_computed(self.layout, self.device, num_computed_tokens)
        if out is not None:
            arguments.check_out(self.layout, self.device, out, out_ptrs, num_reqs_padded)
            arguments.check_apart(out, self.block_tables, self.input_block_tables)
            if out_ptrs is not None and self.validate:
                arguments.check_addresses(out, out_ptrs)
        elif out_ptrs is not None:
            raise ValueError("out_ptrs is given without out")
        if self.validate:
            arguments.check_rows_exist(self.layout, idx_mapping)
        if not 0 <= self.num_dirty_rows <= self.layout.max_num_reqs:
            raise ValueError(f"num_dirty_rows is {self.num_dirty_rows}")

    def _fill(
        self, group: int, rows: list[int], target: torch.Tensor, computed: torch.Tensor | None
    ) -> None:
        """Copies the live columns of a group."""
        source = self.block_tables[group]
        for batch_index, row in enumerate(rows):
            if not 0 <= row < self.layout.max_num_reqs:
                target[batch_index] = 0
                continue
            length = int(self._applied[group, row])
            first = self._first_column(group, row, computed)
            target[batch_index, :length] = source[row, :length]
            target[batch_index, : min(first, length)] = 0

    def _first_column(self, group: int, row: int, computed: torch.Tensor | None) -> int:
        reach = self.layout.reaches[group]
        if computed is None or reach == 0:
            return 0
        return max(int(computed[row]) - reach, 0) // self.layout.block_sizes[group]

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        slots = self._check_slots(idx_mapping, query_start_loc, positions, num_tokens_padded, out)
        starts = query_start_loc[: idx_mapping.numel() + 1].long()
        num_tokens = int(starts[-1])
        rows = torch.repeat_interleave(idx_mapping.long(), starts.diff())
        slots[:, num_tokens:] = PAD_SLOT_ID
        for group in range(self.layout.num_groups):
            slots[group, :num_tokens] = self._slots_of(group, rows, positions[:num_tokens])
        return slots[:, :num_tokens_padded]

    def _check_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None,
    ) -> torch.Tensor:
        """Checks the arguments of slots; returns the buffer that they go to."""
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)
        tokens = (query_start_loc, positions, num_tokens_padded, out)
        arguments.check_tokens(self.layout, self.device, num_reqs, *tokens)
        slots = self.slot_mappings if out is None else out
        if self.validate:
            arguments.check_rows_exist(self.layout, idx_mapping)
            arguments.check_token_ranges(
                num_reqs, query_start_loc, positions, slots.shape[1], num_tokens_padded
            )
        return slots

    def _slots_of(self, group: int, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        layout, table = self.layout, self.block_tables[group]
        size, ranks = layout.block_sizes[group], layout.cp_sizes[group]
        span = size * ranks
        owned = (rows >= 0) & (rows < layout.max_num_reqs)
        inside = owned & (positions >= 0) & (positions < span * layout.widths[group])
        inside &= layout.slot_mapping_enabled[group]
        positions = torch.where(inside, positions, 0)
        column, offset = positions // span, positions % span
        if ranks > 1:
            turn = offset // layout.cp_interleave
            inside &= turn % ranks == layout.cp_rank
            offset = turn // ranks * layout.cp_interleave + offset % layout.cp_interleave
        block_ids = table[torch.where(owned, rows, 0), column]
        return torch.where(inside, block_ids.long() * size + offset, PAD_SLOT_ID)

    def gather_and_compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
        slots_out: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        batch = (idx_mapping, query_start_loc, positions)
        self._check_gather(idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens)
        self._check_slots(*batch, num_tokens_padded, slots_out)
        return super().gather_and_compute_slot_mappings(
            *batch,
            num_reqs_padded,
            num_tokens_padded,
            out=out,
            out_ptrs=out_ptrs,
            num_computed_tokens=num_computed_tokens,
            slots_out=slots_out,
        )

    def prepare_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
        slots_out: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        batch = (idx_mapping, query_start_loc, positions)
        self._check_gather(idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens)
        self._check_slots(*batch, num_tokens_padded, slots_out)
        return super().prepare_step(
            *batch,
            num_reqs_padded,
            num_tokens_padded,
            out=out,
            out_ptrs=out_ptrs,
            num_computed_tokens=num_computed_tokens,
            slots_out=slots_out,
        )

    def get_dummy_block_tables(self, num_reqs: int) -> tuple[torch.Tensor, ...]:
        arguments.check_size("num_reqs", num_reqs, self.layout.max_num_reqs, "max_num_reqs")
        for table in self.input_block_tables:
            table[: max(num_reqs, self.num_dirty_rows)] = 0
        self.num_dirty_rows = num_reqs
        return tuple([table[:num_reqs] for table in self.input_block_tables])

    def get_dummy_slot_mappings(self, num_tokens: int) -> torch.Tensor:
        limit = self.layout.max_num_batched_tokens
        arguments.check_size("num_tokens", num_tokens, limit, "max_num_batched_tokens")
        self.slot_mappings.fill_(PAD_SLOT_ID)
        return self.slot_mappings[:, :num_tokens]

    def restore(self, state: TableState) -> None:
        pairs = (
            (self.block_tables, state.block_tables),
            (self.input_block_tables, state.input_block_tables),
            ([self.slot_mappings], [state.slot_mappings]),
        )
        for mine, saved in pairs:
            if [table.shape for table in mine] != [table.shape for table in saved]:
                raise ValueError("the snapshot is of another layout")
        for mine, saved in pairs:
            for table, other in zip(mine, saved, strict=True):
                table.copy_(other)
        self.num_blocks[:] = state.num_blocks
        self.num_dirty_rows = state.num_dirty_rows
        self._applied = self.num_blocks.copy()
        self._staged.clear()
