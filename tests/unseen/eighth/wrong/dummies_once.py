"""As fused, but dummy block tables that are zero already are not zeroed again.

A warm-up requests dummy outputs once per size, from the largest on. Rows that a call has zeroed are
remembered until something gathers into the input tables, restores or replaces them.

Wrong: the caller may fill the rows that he got (a stand-in for real ids in a warm-up); the next
call does not zero these.

Shows: two calls of `get_dummy_block_tables` without a gather in between, the second with no more
rows, and input tables written by the caller between them.
"""

from bt_kernels.device_tables import arguments
from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """Remembers how many input rows are zero."""

    _zero_rows = 0

    def get_dummy_block_tables(self, num_reqs):
        arguments.check_size("num_reqs", num_reqs, self.layout.max_num_reqs, "max_num_reqs")
        needed = max(int(num_reqs), self._checked_dirty_rows())
        if needed <= self._zero_rows and self._captured_writes is None:
            self.num_dirty_rows = num_reqs
            return self._views_of_tables(num_reqs)
        views = super().get_dummy_block_tables(num_reqs)
        self._zero_rows = needed
        return views

    def _rows_to_gather(self, num_reqs, num_reqs_padded, out):
        if out is None:
            self._zero_rows = 0
        return super()._rows_to_gather(num_reqs, num_reqs_padded, out)

    def restore(self, state):
        super().restore(state)
        self._zero_rows = 0

    def replace_tables(self, block_tables, input_block_tables, slot_mappings):
        super().replace_tables(block_tables, input_block_tables, slot_mappings)
        self._zero_rows = 0
