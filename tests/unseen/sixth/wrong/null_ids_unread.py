"""While writes are redirected to the null block, ids are counted but not read, so none is refused.

Shows with redirect_writes_to_null_block true and an id that is no integer or does not fit int32, by
append_block_ids or append_many: it must be refused with nothing changed, and is staged.
"""

from __future__ import annotations

from bt_kernels.variants.fused import Variant as Base

_ZEROS = [0]


def _nulls(lists):
    try:
        return [_ZEROS * len(ids) for ids in lists]
    except TypeError:  # not lists: let it be refused as usual
        return lists


class Variant(Base):
    """A warm-up stages whole rows; there is no need to convert ids that become 0."""

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        if self.redirect_writes_to_null_block:
            new_block_ids = _nulls(new_block_ids)
        super().append_block_ids(req_index, new_block_ids, overwrite)

    def append_many(self, req_indices, new_block_ids, overwrite):
        if self.redirect_writes_to_null_block:
            new_block_ids = [_nulls(lists) for lists in new_block_ids]
        super().append_many(req_indices, new_block_ids, overwrite)
