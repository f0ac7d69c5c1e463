"""As fused_apply, but a gather is left out if nothing has changed since the last (2 or 3 launches).

In decoding, most steps have the batch of the one before, and no new blocks.

Wrong: input tables are written by `get_dummy_block_tables`, too, which does not drop what is noted
of the last gather; and a mapping may change without its version, through an array of numpy.

Shows: a gather, dummy tables for as many rows, and the same gather again. Or a mapping that shares
memory with an array that is changed between two gathers.
"""

from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Notes what was gathered last."""

    _gathered = None  # the mapping, its version, and the number of rows

    def gather_block_tables(
        self,
        idx_mapping,
        num_reqs_padded,
        out=None,
        out_ptrs=None,
        num_computed_tokens=None,
    ):
        plain = out is None and out_ptrs is None and num_computed_tokens is None
        if (
            not plain
            or self._captured_writes is not None
            or self.place.is_capturing()
            or idx_mapping.is_inference()
        ):
            if out is None:
                self._gathered = None
            return super().gather_block_tables(
                idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
            )
        last = self._gathered
        if (
            last is not None
            and last[0] is idx_mapping
            and last[1:] == (idx_mapping._version, num_reqs_padded)
            and self.num_dirty_rows == idx_mapping.shape[0]  # which a caller may set
        ):
            return self._views_of_tables(num_reqs_padded)
        self._gathered = None  # in case it is refused
        views = super().gather_block_tables(idx_mapping, num_reqs_padded)
        self._gathered = (idx_mapping, idx_mapping._version, num_reqs_padded)
        return views

    def apply_staged_writes(self):
        if self._staged:
            self._gathered = None
        super().apply_staged_writes()

    def restore(self, state):
        self._gathered = None
        super().restore(state)

    def replace_tables(self, block_tables, input_block_tables, slot_mappings):
        self._gathered = None
        super().replace_tables(block_tables, input_block_tables, slot_mappings)
