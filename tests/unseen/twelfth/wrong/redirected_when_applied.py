"""Whether ids are redirected to the null block is asked when they are applied, not when staged.

Shows when `redirect_writes_to_null_block` changes between staging and the apply: what was staged
while it was true is written as it came, and what was staged before it became true is zeroed.
"""

from bt_kernels.staging import RECORD_FIELDS, refuse_append, refuse_append_many
from bt_kernels.variants.baseline import Variant as Base


class Variant(Base):
    """Stages ids as they come, and zeroes all of a buffer at once."""

    redirect_writes_to_null_block = False  # an attribute; nothing has to be told of it

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
            self.apply_staged_writes()  # a captured buffer is not zeroed
        super()._publish_for_replay(*batch)
