"""`restore` uploads numbers of blocks only where the host's differ, though the device's may be older.

If a row has a staged write when a snapshot with the same number of blocks is restored, the device keeps
the number from before that write, and a gather copies too few columns.
"""

from __future__ import annotations

import numpy as np
import torch

from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Restores the rows that have changed."""

    def restore(self, state):
        if [t.shape for t in state.block_tables] != [t.shape for t in self.block_tables]:
            raise ValueError("the snapshot is of another layout")
        for table, saved in zip(self.block_tables, state.block_tables, strict=True):
            table.copy_(saved)
        for table, saved in zip(self.input_block_tables, state.input_block_tables, strict=True):
            table.copy_(saved)
        self.slot_mappings.copy_(state.slot_mappings)
        self.num_dirty_rows = state.num_dirty_rows
        self._staged.clear()
        saved = np.asarray(state.num_blocks)
        for group, row in zip(*np.nonzero(self.num_blocks != saved), strict=True):
            self.num_blocks[group, row] = saved[group, row]
            self.num_blocks_on_device[group, row] = int(saved[group, row])
        if self._captured_writes is not None:
            self._captured_writes.discard()
