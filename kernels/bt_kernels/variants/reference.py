"""The semantics in plain code: slow, obvious, on the CPU, in int64; never timed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from bt_kernels.interface import BlockTableOperations, TableState
from bt_kernels.layout import FEATURES, PAD_SLOT_ID, TableLayout


class Variant(BlockTableOperations):
    """The reference for all other variants. It shares no code with them."""

    features = FEATURES

    def __init__(self, layout: TableLayout, device: torch.device | str = "cpu") -> None:
        self.layout = layout
        self.device = torch.device(device)
        rows = layout.max_num_reqs
        self.block_tables = [torch.zeros(rows, w, dtype=torch.int64) for w in layout.widths]
        self.input_block_tables = [torch.zeros(rows, w, dtype=torch.int64) for w in layout.widths]
        self.slot_mappings = torch.full(
            (layout.num_groups, layout.max_num_batched_tokens), PAD_SLOT_ID, dtype=torch.int64
        )
        self.num_blocks = np.zeros((layout.num_groups, rows), dtype=np.int64)
        self.num_dirty_rows = 0
        # A gather sees the number of blocks as of the last apply, as on a device.
        self._applied_num_blocks = self.num_blocks.copy()
        self._staged: dict[tuple[int, int], dict[int, int]] = {}

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        if not 0 <= req_index < self.layout.max_num_reqs:
            raise ValueError(f"req_index is {req_index}; max_num_reqs {self.layout.max_num_reqs}")
        if len(new_block_ids) != self.layout.num_groups:
            raise ValueError(f"{len(new_block_ids)} lists for {self.layout.num_groups} groups")
        starts = [
            0 if overwrite else int(self.num_blocks[group, req_index])
            for group in range(self.layout.num_groups)
        ]
        for group, ids in enumerate(new_block_ids):
            end = starts[group] + len(ids)
            width = self.layout.widths[group]
            if end > width:
                raise ValueError(f"row {req_index} of group {group}: {end} blocks, width {width}")
            for block_id in ids:
                if not -(2**31) <= block_id < 2**31:
                    raise ValueError(f"block id {block_id} of group {group} does not fit int32")
        for group, ids in enumerate(new_block_ids):
            if overwrite:
                self._staged[group, req_index] = {}
            columns = self._staged.setdefault((group, req_index), {})
            for offset, block_id in enumerate(ids):
                null = self.redirect_writes_to_null_block
                columns[starts[group] + offset] = 0 if null else block_id
            self.num_blocks[group, req_index] = starts[group] + len(ids)

    def apply_staged_writes(self) -> None:
        for (group, row), columns in self._staged.items():
            if columns:  # a row at a time: checks of large tables set up millions of block ids
                table = self.block_tables[group]
                ids = torch.tensor(list(columns.values()), dtype=table.dtype, device=table.device)
                table[row, list(columns)] = ids
        self._staged.clear()
        self._applied_num_blocks = self.num_blocks.copy()

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        rows = self._rows(idx_mapping)
        targets = self.input_block_tables if out is None else out
        most = min((len(target) for target in targets), default=num_reqs_padded)
        if not len(rows) <= num_reqs_padded <= most:
            raise ValueError(
                f"num_reqs_padded is {num_reqs_padded}; expected {len(rows)} to {most}"
            )
        end = num_reqs_padded if out is not None else max(num_reqs_padded, self.num_dirty_rows)
        for group in range(self.layout.num_groups):
            source, target = self.block_tables[group], targets[group]
            target[len(rows) : end] = 0
            for batch_index, row in enumerate(rows):
                if row < 0:  # a dummy request
                    target[batch_index] = 0
                    continue
                length = int(self._applied_num_blocks[group, row])
                target[batch_index, :length] = source[row, :length]
                if num_computed_tokens is not None:
                    computed = int(num_computed_tokens[row])
                    target[batch_index, : min(self._first_column(group, computed), length)] = 0
        if out is None:
            self.num_dirty_rows = len(rows)
        return tuple(table[:num_reqs_padded] for table in targets)

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        slot_mappings = self.slot_mappings if out is None else out
        if num_tokens_padded > slot_mappings.shape[1]:
            raise ValueError(f"num_tokens_padded is {num_tokens_padded}, past the buffer")
        starts = np.array(query_start_loc.tolist(), dtype=np.int64)
        requests = self._rows(idx_mapping)
        rows = np.repeat(np.array(requests, dtype=np.int64), np.diff(starts[: len(requests) + 1]))
        end = int(starts[len(requests)])
        its_positions = positions[:end].cpu().numpy().astype(np.int64)
        for group in range(self.layout.num_groups):
            slots = self._slots(group, rows, its_positions)
            slot_mappings[group, :end] = torch.from_numpy(slots)
            slot_mappings[group, end:] = PAD_SLOT_ID
        return slot_mappings[:, :num_tokens_padded]

    def get_dummy_block_tables(self, num_reqs: int) -> tuple[torch.Tensor, ...]:
        for table in self.input_block_tables:
            table[: max(num_reqs, self.num_dirty_rows)] = 0
        self.num_dirty_rows = num_reqs
        return tuple(table[:num_reqs] for table in self.input_block_tables)

    def get_dummy_slot_mappings(self, num_tokens: int) -> torch.Tensor:
        self.slot_mappings[:] = PAD_SLOT_ID
        return self.slot_mappings[:, :num_tokens]

    def restore(self, state: TableState) -> None:
        for table, saved in zip(self.block_tables, state.block_tables, strict=True):
            table.copy_(saved)
        for table, saved in zip(self.input_block_tables, state.input_block_tables, strict=True):
            table.copy_(saved)
        self.slot_mappings.copy_(state.slot_mappings)
        self.num_blocks[:] = state.num_blocks
        self.num_dirty_rows = state.num_dirty_rows
        self._staged.clear()
        self._applied_num_blocks = self.num_blocks.copy()

    def _rows(self, idx_mapping: torch.Tensor) -> list[int]:
        """Return the rows of a batch; -1 for rows that do not exist."""
        return [row if row < self.layout.max_num_reqs else -1 for row in idx_mapping.tolist()]

    def _first_column(self, group: int, computed: int) -> int:
        """Return the first column that the sliding window of a group reaches; 0 without one."""
        reach = self.layout.sliding_window_reach[group]
        if reach == 0 or self.layout.cp_size > 1:
            return 0
        return max(computed - reach, 0) // self.layout.block_sizes[group]

    def _slots(
        self, group: int, rows: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the slots of tokens by row and position; `PAD_SLOT_ID` for tokens without one."""
        layout = self.layout
        table = self.block_tables[group].cpu().numpy()
        size = layout.block_sizes[group]
        ranks = layout.cp_size if layout.dcp_sharded[group] else 1
        columns, offsets = positions // (size * ranks), positions % (size * ranks)
        has_slot = (rows >= 0) & (columns >= 0) & (columns < layout.widths[group])
        has_slot &= layout.slot_mapping_enabled[group]
        if ranks > 1:
            interleave = layout.cp_interleave
            has_slot &= offsets // interleave % ranks == layout.cp_rank  # else another rank has it
            offsets = offsets // (interleave * ranks) * interleave + offsets % interleave
        slots = np.full(len(positions), PAD_SLOT_ID, dtype=np.int64)
        slots[has_slot] = table[rows[has_slot], columns[has_slot]] * size + offsets[has_slot]
        return slots
