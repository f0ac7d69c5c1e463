"""Redirection to the null block is decided when writes are packed, not when they are staged.

Shows: set `redirect_writes_to_null_block`, append, unset it, apply: the real ids are written. Or the
other way round: what was staged before it was set becomes 0.
"""

from __future__ import annotations

from bt_kernels.staging import RECORD_FIELDS, refuse_append, refuse_append_many
from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """One memset of the packed ids in place of a branch for each id that is staged."""

    def append_block_ids(self, req_index, new_block_ids, overwrite) -> None:
        if not self._staged.append(req_index, new_block_ids, overwrite, False):
            refuse_append(self.layout, self.num_blocks, req_index, new_block_ids, overwrite)

    def append_many(self, req_indices, new_block_ids, overwrite) -> None:
        if not self._staged.append_many(req_indices, new_block_ids, overwrite, False):
            refuse_append_many(self.layout, self.num_blocks, req_indices, new_block_ids, overwrite)

    def _publish(self) -> list[int]:
        records_per_group = super()._publish()
        if self.redirect_writes_to_null_block:
            first = RECORD_FIELDS * self._staged.num_records
            self._ring.current[first : first + self._staged.num_ids].zero_()
        return records_per_group

    def _publish_for_replay(self, *batch) -> None:
        if self.redirect_writes_to_null_block:
            self.apply_staged_writes()
        super()._publish_for_replay(*batch)
