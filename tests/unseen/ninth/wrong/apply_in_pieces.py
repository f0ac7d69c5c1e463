"""As fused, but four programs for each staged record.

What it does: a prefill's record is written by four programs, each of which takes every fourth piece
of 128 ids. The one with the last piece also stores the row's number of blocks.

Wrong: a record without ids has no last piece, so that a row which is overwritten with no blocks
keeps its number of blocks on the device, and is gathered as before.

Shows: an overwrite of a row with an empty list, apply, a gather of the row to another batch index.
"""

import triton
import triton.language as tl

from bt_kernels.device_code.fields import (
    DESCRIPTOR_FIELDS,
    NUM_BLOCKS,
    RECORD_FIELDS,
    SOURCE,
    WIDTH,
)
from bt_kernels.variants.fused import Variant as Base

PIECE, SHARES = 128, 4


@triton.jit
def apply_pieces_kernel(descriptors, staging, PIECE: tl.constexpr):
    """Every so many pieces of a record; grid `(records, programs)`."""
    record = staging + tl.program_id(0) * RECORD_FIELDS
    group = tl.load(record).to(tl.int64)
    row = tl.load(record + 1).to(tl.int64)
    start = tl.load(record + 2)
    length = tl.load(record + 3)
    contents = tl.load(record + 4)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    for first in range(tl.program_id(1) * PIECE, length, tl.num_programs(1) * PIECE):
        offsets = first + tl.arange(0, PIECE)
        mask = offsets < length
        block_ids = tl.load(staging + contents + offsets, mask=mask)
        tl.store(table + row * width + start + offsets, block_ids, mask=mask)
        if first + PIECE >= length:
            num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
            tl.store(num_blocks + row, start + length)


class Variant(Base):
    """Applies in pieces."""

    def _launch_apply(self, records_per_group):
        self.launch(
            apply_pieces_kernel,
            (sum(records_per_group), SHARES, 1),
            (self.descriptors, self._ring.current),
            (PIECE,),
            (),
        )
