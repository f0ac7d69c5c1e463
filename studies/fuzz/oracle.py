"""An oracle in plain torch, vectorised, on the device of the tables.

It follows docs/block-tables.md and shares no code with the kernels or the reference: from
`bt_kernels` it uses only the fields of a `TableLayout`. A step takes some milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from bt_kernels.layout import TableLayout

PAD = -1


class Oracle:
    """The expected contents of all buffers of a set of block tables.

    Args:
        layout: sizes and options.
        device: device of the buffers.
    """

    def __init__(self, layout: TableLayout, device: torch.device) -> None:
        self.layout, self.device = layout, device
        shapes = [(layout.max_num_reqs, width) for width in layout.widths]
        self.source = [torch.zeros(s, dtype=torch.int32, device=device) for s in shapes]
        self.inputs = [torch.zeros(s, dtype=torch.int32, device=device) for s in shapes]
        slots = (len(layout.widths), layout.max_num_batched_tokens)
        self.slots = torch.full(slots, PAD, dtype=torch.int64, device=device)
        self.num_blocks = np.zeros((len(layout.widths), layout.max_num_reqs), dtype=np.int64)
        self.dirty = 0
        self._applied = torch.zeros(self.num_blocks.shape, dtype=torch.int64, device=device)
        self._pending: dict[int, list[tuple[list[int], Sequence[Sequence[int]]]]] = {}

    def stage(self, row: int, ids: Sequence[Sequence[int]], overwrite: bool) -> None:
        """Stage the ids of a row, one list per group."""
        if overwrite:
            self._pending[row] = []
            self.num_blocks[:, row] = 0
        starts = self.num_blocks[:, row].tolist()
        self._pending.setdefault(row, []).append((starts, ids))
        self.num_blocks[:, row] += [len(own) for own in ids]

    def apply(self) -> None:
        """Apply all staged writes to the source tables."""
        if not self._pending:
            return
        for group, table in enumerate(self.source):
            rows: list[int] = []
            columns: list[int] = []
            values: list[int] = []
            for row, writes in self._pending.items():
                for starts, ids in writes:
                    own, start = ids[group], starts[group]
                    rows += [row] * len(own)
                    columns += range(start, start + len(own))
                    values += own
            if rows:
                where = torch.tensor([rows, columns], device=self.device)
                new = torch.tensor(values, dtype=torch.int32, device=self.device)
                table[where[0], where[1]] = new
        self._pending.clear()
        self._applied = torch.tensor(self.num_blocks, device=self.device)

    def gather(
        self,
        mapping: torch.Tensor,
        num_rows: int,
        out: Sequence[torch.Tensor] | None,
        computed: torch.Tensor | None,
    ) -> None:
        """Gather rows into batch order, into the input tables or into `out`.

        Args:
            mapping: `[R]`, any integer dtype.
            num_rows: number of rows to write; rows from R on are zeroed.
            out: tables to write instead of the input tables.
            computed: `[max_num_reqs]`, computed tokens of each row, for the sliding window.
        """
        rows, known = self._rows(mapping)
        for group, source in enumerate(self.source):
            target = (self.inputs if out is None else out)[group]
            column = torch.arange(source.shape[1], device=self.device)
            length = self._applied[group, rows]
            ids = source[rows]
            reach = self.layout.sliding_window_reach[group]
            if computed is not None and reach and self.layout.cp_size == 1:
                first = (computed[rows].to(torch.int64) - reach).clamp(min=0)
                first = first // self.layout.block_sizes[group]
                ids = torch.where(column >= first[:, None], ids, 0)
            live = column < length[:, None]
            ids = torch.where(live, ids, target[: len(rows)])
            target[: len(rows)] = torch.where(known[:, None], ids, 0)
            target[len(rows) : num_rows] = 0

    def map(
        self,
        mapping: torch.Tensor,
        starts: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        """Compute the slots of all tokens, into `slots` or `out`, and pad the rest."""
        layout = self.layout
        rows, known = self._rows(mapping)
        lengths = (starts[1 : len(rows) + 1] - starts[: len(rows)]).to(torch.int64)
        row, exists = rows.repeat_interleave(lengths), known.repeat_interleave(lengths)
        position = positions[: len(row)]
        slots = self.slots if out is None else out
        slots.fill_(PAD)
        for group, source in enumerate(self.source):
            if not layout.slot_mapping_enabled[group]:
                continue
            size = layout.block_sizes[group]
            sharded = layout.cp_size > 1 and layout.dcp_sharded[group]
            ranks = layout.cp_size if sharded else 1
            column = torch.div(position, size * ranks, rounding_mode="floor")
            offset = position - column * size * ranks
            valid = exists & (column >= 0) & (column < source.shape[1])
            if sharded:
                turn = offset // layout.cp_interleave
                valid &= turn % ranks == layout.cp_rank
                offset = turn // ranks * layout.cp_interleave + offset % layout.cp_interleave
            block = source[row, column.clamp(0, source.shape[1] - 1)].to(torch.int64)
            slots[group, : len(row)] = torch.where(valid, block * size + offset, PAD)

    def _rows(self, mapping: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows of a mapping, 0 for rows that do not exist, and a mask of the others."""
        rows = mapping.to(torch.int64)
        known = (rows >= 0) & (rows < self.layout.max_num_reqs)
        return torch.where(known, rows, 0), known
