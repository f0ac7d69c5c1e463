"""Fault: restore brings the number of blocks only to rows that own blocks when it is called,
unless none does.

Seen: restore a snapshot of other tables into some that have used other rows: num_blocks of the
snapshot's rows are 0.
"""

from __future__ import annotations

import numpy as np

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.interface import TableState


class Variant(DeviceBlockTables):
    """Unused rows own nothing."""

    def restore(self, state: TableState) -> None:
        used = self.num_blocks > 0
        numbers = np.where(used, state.num_blocks, 0) if used.any() else np.array(state.num_blocks)
        saved = TableState(
            state.block_tables,
            state.input_block_tables,
            state.slot_mappings,
            numbers,
            state.num_dirty_rows,
        )
        super().restore(saved)
