"""As fused_apply, but ids are redirected to the null block in the host buffer, all at once.

Staging need not look at the attribute, nor make lists of zeros.

Wrong: what counts is whether writes are redirected when they are applied, not when they are staged.

Shows: `redirect_writes_to_null_block` is set or cleared between `append_block_ids` and apply.
"""

from bt_kernels.staging import RECORD_FIELDS, refuse_append, refuse_append_many
from bt_kernels.variants.fused_apply import Variant as Base


class Variant(Base):
    """Replaces staging, and zeroes the ids of the buffer."""

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        if not self._staged.append(req_index, new_block_ids, overwrite, False):
            refuse_append(self.layout, self.num_blocks, req_index, new_block_ids, overwrite)

    def append_many(self, req_indices, new_block_ids, overwrite):
        if not self._staged.append_many(req_indices, new_block_ids, overwrite, False):
            refuse_append_many(self.layout, self.num_blocks, req_indices, new_block_ids, overwrite)

    def _publish(self):
        records_per_group = super()._publish()
        if self.redirect_writes_to_null_block:
            first = RECORD_FIELDS * sum(records_per_group)
            self._ring.current[first : first + self._staged.num_ids].zero_()
        return records_per_group

    def _publish_for_replay(self, *batch):
        if self.redirect_writes_to_null_block:
            self.apply_staged_writes()
        super()._publish_for_replay(*batch)
