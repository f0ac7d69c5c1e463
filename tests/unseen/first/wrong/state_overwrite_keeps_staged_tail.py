"""Fault: an overwrite drops what was staged for the row only as far as its own ids go.

Seen: append 3 blocks to an empty row and overwrite it with 1 in the same step: columns 1 and 2
of the source row hold ids that are never to be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import torch

from bt_kernels.fusions import FusedApply
from bt_kernels.interface import TableState
from bt_kernels.layout import TableLayout


class Variant(FusedApply):
    """Writes every call in its order."""

    def __init__(self, layout: TableLayout, device: torch.device | str, **options: object) -> None:
        super().__init__(layout, device, **options)
        self._tails: dict[tuple[int, int], tuple[int, list[int]]] = {}

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        staged = self._staged.intervals() if overwrite else []
        super().append_block_ids(req_index, new_block_ids, overwrite)
        for group, row, start, ids in staged:
            if row == index(req_index) and len(new_block_ids[group]) < start + len(ids):
                self._tails[group, row] = (start, ids)

    def _launch_apply(self, records_per_group: list[int]) -> None:
        for (group, row), (start, ids) in self._tails.items():
            # What is staged now is written after this.
            table = self.block_tables[group]
            table[row, start : start + len(ids)] = torch.tensor(ids, dtype=torch.int32)
        self._tails.clear()
        super()._launch_apply(records_per_group)

    def restore(self, state: TableState) -> None:
        super().restore(state)
        self._tails.clear()
