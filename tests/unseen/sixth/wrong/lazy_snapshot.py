"""A snapshot shares the source tables until the next write, but a restore does not count as one.

Shows when another snapshot is restored right after one was taken: snapshot A, writes and apply,
snapshot B, restore A, restore B gives A's source tables with B's number of blocks.
"""

from __future__ import annotations

import weakref

import numpy as np

from bt_kernels.interface import TableState
from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Most snapshots are dropped before anything is written: then large tables are not copied."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._lazy = []

    def snapshot(self):
        state = TableState(
            list(self.block_tables),
            [table.clone() for table in self.input_block_tables],
            self.slot_mappings.clone(),
            np.array(self.num_blocks),
            self.num_dirty_rows,
        )
        self._lazy.append(weakref.ref(state))
        return state

    def _own_snapshots(self):
        """Copies shared tables for the snapshots that are still there."""
        for reference in self._lazy:
            state = reference()
            if state is not None:
                state.block_tables = [table.clone() for table in state.block_tables]
        self._lazy.clear()

    def apply_staged_writes(self):
        if self._lazy:
            self._own_snapshots()
        super().apply_staged_writes()

    def capture_step(self, *batch, **options):
        self._own_snapshots()
        return super().capture_step(*batch, **options)

    def _publish_for_replay(self, *batch):
        self._own_snapshots()
        super()._publish_for_replay(*batch)
