"""Whether ids are redirected to the null block is asked when they are applied, not when they are
staged.

Shows if the attribute changes between staging and apply.
"""

from __future__ import annotations

from bt_kernels.staging import refuse_append, refuse_append_many
from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Stages ids as they are."""

    native = False

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        if not self._staged.append(req_index, new_block_ids, overwrite, False):
            refuse_append(self.layout, self.num_blocks, req_index, new_block_ids, overwrite)

    def append_many(self, req_indices, new_block_ids, overwrite):
        if not self._staged.append_many(req_indices, new_block_ids, overwrite, False):
            refuse_append_many(self.layout, self.num_blocks, req_indices, new_block_ids, overwrite)

    def _publish(self):
        if self.redirect_writes_to_null_block:
            for intervals in self._staged._groups:
                for _, ids in intervals.values():
                    ids[:] = type(ids)("i", bytes(4 * len(ids)))
        return super()._publish()
