"""As one_launch, but a snapshot of tables that have not changed is the one that was made last.

A harness takes a snapshot before each of many measurements. A copy of all tables takes memory and
time, so the last one is returned again as long as torch's version counters of the tables, the
numbers of blocks and the dirty rows are what they were.

Wrong: kernels write tables without torch, so their counters stay. A step that leaves the numbers
    of blocks and dirty rows as they were, such as one that overwrites a row with as many other
    blocks, is taken for none.
Shows: overwrite, apply, snapshot; overwrite with as many ids, apply, snapshot; restore the second.
"""

from __future__ import annotations

from bt_kernels.variants.one_launch import Variant as Base


class Variant(Base):
    """The last snapshot is kept while it is the state."""

    def snapshot(self):
        tables = (*self.block_tables, *self.input_block_tables, self.slot_mappings)
        key = (
            tuple((table.data_ptr(), table._version) for table in tables),
            self.num_blocks.tobytes(),
            int(self.num_dirty_rows),
        )
        kept = getattr(self, "_kept_snapshot", None)
        if kept is None or kept[0] != key:
            kept = self._kept_snapshot = (key, super().snapshot())
        return kept[1]
