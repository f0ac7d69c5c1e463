"""Fault: restore takes the tensors of the snapshot in place of its own ones.

Seen: after a restore the tables have other addresses, and the snapshot changes with the tables,
so that a second restore of it restores later contents.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.interface import TableState


class Variant(DeviceBlockTables):
    """Saves the copies of the tables."""

    def restore(self, state: TableState) -> None:
        super().restore(state)
        if all(table.dtype is torch.int32 for table in state.block_tables):
            self.block_tables = [table.to(self.device) for table in state.block_tables]
            self.init_block_table_layout_tensors()
