"""A restore uploads the numbers of blocks before it forgets what is staged.

Shows when something is staged for a row at the time of a restore: its number of blocks on the
device stays that of the last apply, so the next gather copies too few or too many columns of it.
"""

from bt_kernels.variants.fused_gather_slots import Variant as Base


class Variant(Base):
    """Restores what comes from the host first, so that its copy overlaps those of the tables."""

    def restore(self, state):
        tables = [*self.block_tables, *self.input_block_tables, self.slot_mappings]
        saved = [*state.block_tables, *state.input_block_tables, state.slot_mappings]
        if [table.shape for table in tables] != [table.shape for table in saved]:
            raise ValueError("the snapshot is of another layout; expected one of equal tables")
        if self._captured_writes is not None:
            self._captured_writes.discard()
        self.num_blocks[:] = state.num_blocks
        self._upload_num_blocks()
        self.num_dirty_rows = state.num_dirty_rows
        for table, its_copy in zip(tables, saved, strict=True):
            table.copy_(its_copy)
        self._staged.clear()
