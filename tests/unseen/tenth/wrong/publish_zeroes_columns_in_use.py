"""As fused_apply, but `publish` zeroes dirty rows only as far as rows are in use.

Tables are as wide as the longest sequence, and most rows are short: the zeroing in `publish` takes
as many columns as the longest row of the group has blocks.

Wrong: the rows may be shorter now than they were when the dirty rows were gathered.
Shows: a step of two requests, then shorter overwrites, then a captured step of one request.
"""

from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Zeroes less before replays."""

    def _zero_dirty_rows(self, num_reqs_padded):
        writes = self._captured_writes
        dirty = max(self.num_dirty_rows, writes.uncounted)
        writes.uncounted = 0
        if dirty > num_reqs_padded:
            for table, num_blocks in zip(self.input_block_tables, self.num_blocks, strict=True):
                table[num_reqs_padded:dirty, : int(num_blocks.max())].zero_()
        self.num_dirty_rows = writes.rows = num_reqs_padded
