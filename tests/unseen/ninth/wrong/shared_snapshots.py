"""As fused_apply, but snapshots between two applies share one copy of the source tables.

Source tables are by far the largest part of a snapshot, and change only when writes are applied.
So the copy is kept until then.

Wrong: `restore` changes them, too, and leaves the kept copy.
Shows: snapshot A, stage, apply, snapshot B, restore A, snapshot C: restoring C brings back the
source tables of B.
"""

from __future__ import annotations

from bt_kernels.interface import TableState
from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Copies source tables only if they have changed since the last snapshot."""

    _source_copies = None

    def snapshot(self):
        if self._captured_writes is not None:  # replays write without our knowing
            return super().snapshot()
        saved = self._source_copies
        if saved is None:
            self._source_copies = saved = [table.clone() for table in self.block_tables]
        return TableState(
            saved,
            [table.clone() for table in self.input_block_tables],
            self.slot_mappings.clone(),
            self.num_blocks.copy(),
            self.num_dirty_rows,
        )

    def apply_staged_writes(self):
        if self._staged:
            self._source_copies = None
        super().apply_staged_writes()

    def replace_tables(self, block_tables, input_block_tables, slot_mappings):
        self._source_copies = None
        super().replace_tables(block_tables, input_block_tables, slot_mappings)
