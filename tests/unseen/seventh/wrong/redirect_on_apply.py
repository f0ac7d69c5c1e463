"""As fused, but ids are redirected to the null block when they are packed (2 launches a step).

So staging need not make a list of zeros for each list of ids.

Wrong: what counts is whether `redirect_writes_to_null_block` is true when a write is staged. Here
it counts when the write is applied or published.

Shows: the attribute is changed between staging and the next apply.
"""

from array import array

from bt_kernels.staging import RECORD_FIELDS, StagedWrites
from bt_kernels.variants.fused import Variant as Base


class RedirectedWrites(StagedWrites):
    """Staged writes that become null blocks on their way to the device."""

    redirects = False  # the tables keep it up to date

    def append(self, row, block_ids, overwrite, _redirect, /):
        return super().append(row, block_ids, overwrite, False)

    def append_many(self, rows, block_ids, overwrite, _redirect, /):
        return super().append_many(rows, block_ids, overwrite, False)

    def pack(self, view, first, /):
        records_per_group = super().pack(view, first)
        if self.redirects:
            begin = first + RECORD_FIELDS * sum(records_per_group)
            view[begin : begin + self.num_ids] = array("i", [0]) * self.num_ids
        return records_per_group


class Variant(Base):
    """Stages in `RedirectedWrites`."""

    def _stage_in(self, _staged):
        super()._stage_in(RedirectedWrites(self.layout.widths, self.num_blocks))
