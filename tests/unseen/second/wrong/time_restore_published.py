"""Keeps what a captured step published over a `restore`.

It shows at the first apply after a `restore` that follows a captured step: the old ids are written
into the restored tables.
"""

from bt_kernels.variants import fused


class Variant(fused.Variant):
    """As fused, with a restore of its own that does not know of captured steps."""

    def restore(self, state):
        pairs = [
            *zip(self.block_tables, state.block_tables, strict=True),
            *zip(self.input_block_tables, state.input_block_tables, strict=True),
            (self.slot_mappings, state.slot_mappings),
        ]
        for table, saved in pairs:
            table.copy_(saved)
        self.num_blocks[:] = state.num_blocks
        self.num_dirty_rows = state.num_dirty_rows
        self._staged.clear()
        self._upload_num_blocks()
