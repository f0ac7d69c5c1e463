"""Redirects writes to the null block when they are applied instead of when they are staged.

It shows when `redirect_writes_to_null_block` changes between staging and apply, as at the end of a
warm-up: ids staged during it are written as they are.
"""

from bt_kernels.staging import RECORD_FIELDS
from bt_kernels.variants import fused


class Variant(fused.Variant):
    """As fused, with the redirection in one place for both ways to stage."""

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        self._with_ids_kept(super().append_block_ids, req_index, new_block_ids, overwrite)

    def append_many(self, req_indices, new_block_ids, overwrite):
        self._with_ids_kept(super().append_many, req_indices, new_block_ids, overwrite)

    def _with_ids_kept(self, append, *arguments):
        redirect, self.redirect_writes_to_null_block = self.redirect_writes_to_null_block, False
        try:
            append(*arguments)
        finally:
            self.redirect_writes_to_null_block = redirect

    def _publish(self):
        records_per_group = super()._publish()
        if self.redirect_writes_to_null_block:
            self._ring.current[RECORD_FIELDS * sum(records_per_group) :].zero_()
        return records_per_group
