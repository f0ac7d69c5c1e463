"""Fault: row and first column of a write share a word, with 15 bits for the column.

Seen: an append that starts at column 32768 or later is written to the beginning of the next
row.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Writes by torch from packed keys."""

    def _launch_apply(self, records_per_group: list[int]) -> None:
        for group, row, start, ids in self._staged.intervals():
            key = row << 15 | start
            self.num_blocks_on_device[group, row] = start + len(ids)
            row, start = (key >> 15) % self.layout.max_num_reqs, key & 0x7FFF
            table = self.block_tables[group]
            table[row, start : start + len(ids)] = torch.tensor(ids, dtype=torch.int32)
