"""Fault: restore does not forget what is staged.

Seen: stage, restore, apply: the staged ids are written into the restored tables.
"""

from __future__ import annotations

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.interface import TableState


class Variant(DeviceBlockTables):
    """The staging area is no part of the state."""

    def restore(self, state: TableState) -> None:
        staged = self._staged.intervals()
        super().restore(state)
        counts = self.num_blocks.copy()
        for group, row, start, ids in staged:
            # Puts them back as they were, and the number of blocks with them.
            if start <= counts[group, row]:
                lists = [ids if other == group else [] for other in range(len(counts))]
                self.num_blocks[group, row] = start
                self._staged.append(row, lists, False, False)
                self.num_blocks[group, row] = counts[group, row]
