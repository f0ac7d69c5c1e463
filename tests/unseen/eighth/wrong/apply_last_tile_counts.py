"""As fused_apply, but a program of apply writes 128 ids of a row, so that a long prompt is spread out.

Only the program that has the last ids of a row stores how many blocks the row has.

Wrong: a row that is overwritten with no ids has no last ids, so its number of blocks on the device
stays what it was.

Shows: a row with blocks is overwritten with an empty list, applied, and gathered to an input row
that holds something else.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, WIDTH
from bt_kernels.staging import RECORD_FIELDS
from bt_kernels.variants.fused_apply import Variant as Base

TILE = 128


@triton.jit(do_not_specialize=["first_record"])
def apply_tiles_kernel(
    descriptors, staging, first_record, FIELDS: tl.constexpr, TILE: tl.constexpr
):
    """Writes one tile of one record; grid `(records, tiles)`."""
    record = staging + (first_record + tl.program_id(0)) * FIELDS
    tile = tl.program_id(1)
    group = tl.load(record).to(tl.int64)
    row = tl.load(record + 1).to(tl.int64)
    start = tl.load(record + 2)
    length = tl.load(record + 3)
    contents = tl.load(record + 4)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    offsets = tile * TILE + tl.arange(0, TILE)
    mask = offsets < length
    ids = tl.load(staging + contents + offsets, mask=mask, other=0)
    tl.store(source + row * width + start + offsets, ids, mask=mask)
    if (tile * TILE < length) & (length <= (tile + 1) * TILE):
        tl.store(num_blocks + row, start + length)


class Variant(Base):
    """Replaces the launch of apply."""

    def _launch_apply(self, records_per_group):
        longest = max(len(ids) for _, _, _, ids in self._staged.intervals())
        self.launch(
            apply_tiles_kernel,
            (sum(records_per_group), max(1, triton.cdiv(longest, TILE)), 1),
            (self.descriptors, self._ring.current, 0),
            (RECORD_FIELDS, TILE),
            (),
        )
