"""As fused, but several programs write a long interval, in pieces of 64 ids.

A prefill of a long prompt stages thousands of ids for one row; up to 16 programs take turns with
its pieces. The one with the first piece counts the row's blocks.

Wrong: an interval without ids has no first piece, so the row keeps its number on the device.
Shows: overwrite a row with no ids, apply, gather.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import (
    DESCRIPTOR_FIELDS,
    NUM_BLOCKS,
    RECORD_FIELDS,
    SOURCE,
    WIDTH,
)
from bt_kernels.variants.fused import Variant as Base

PIECE = 64
MOST = 16


@triton.jit(do_not_specialize=["num_programs"])
def apply_pieces_kernel(descriptors, staging, num_programs, PIECE: tl.constexpr):
    """Grid `(records, num_programs)`."""
    record = staging + tl.program_id(0) * RECORD_FIELDS
    group = tl.load(record).to(tl.int64)
    row = tl.load(record + 1).to(tl.int64)
    start = tl.load(record + 2)
    length = tl.load(record + 3)
    contents = tl.load(record + 4)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    for first in range(tl.program_id(1) * PIECE, length, num_programs * PIECE):
        if first == 0:
            tl.store(num_blocks + row, start + length)
        offsets = first + tl.arange(0, PIECE)
        mask = offsets < length
        ids = tl.load(staging + contents + offsets, mask=mask)
        tl.store(table + row * width + start + offsets, ids, mask=mask)


class Variant(Base):
    """Pieces side by side."""

    def _launch_apply(self, records_per_group):
        pieces = min(MOST, max(1, triton.cdiv(self._staged.num_ids, PIECE)))
        self.launch(
            apply_pieces_kernel,
            (sum(records_per_group), pieces, 1),
            (self.descriptors, self._ring.current, pieces),
            (PIECE,),
            (),
        )
