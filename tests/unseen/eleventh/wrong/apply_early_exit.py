"""The apply kernel leaves early where a record has no ids, and so never counts the row as empty.

Shows when a row is overwritten with no ids in a group: gather goes on copying the blocks that the
row had before, where its input row should keep its contents.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import (
    DESCRIPTOR_FIELDS,
    NUM_BLOCKS,
    RECORD_FIELDS,
    SOURCE,
    STEP_SIZES,
    WIDTH,
)
from bt_kernels.variants.fused import Variant as Base

BLOCK = 64
PIECES = 4


@triton.jit(do_not_specialize=STEP_SIZES)
def apply_pieces_kernel(
    descriptors, staging, first_record, BLOCK: tl.constexpr, PIECES: tl.constexpr
):
    """Grid `(records, PIECES)`: each program writes every `PIECES`-th block of a record's ids."""
    record = staging + (first_record + tl.program_id(0)) * RECORD_FIELDS
    begin = tl.program_id(1) * BLOCK
    length = tl.load(record + 3)
    if begin < length:  # most programs have nothing to write
        group = tl.load(record).to(tl.int64)
        row = tl.load(record + 1).to(tl.int64)
        start = tl.load(record + 2)
        contents = tl.load(record + 4)
        descriptor = descriptors + group * DESCRIPTOR_FIELDS
        table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        table += row * tl.load(descriptor + WIDTH) + start
        if begin == 0:
            num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
            tl.store(num_blocks + row, start + length)
        for first in range(begin, length, PIECES * BLOCK):
            offsets = first + tl.arange(0, BLOCK)
            mask = offsets < length
            block_ids = tl.load(staging + contents + offsets, mask=mask)
            tl.store(table + offsets, block_ids, mask=mask)


class Variant(Base):
    """Long writes are shared by several programs."""

    def _launch_apply(self, records_per_group):
        self.launch(
            apply_pieces_kernel,
            (sum(records_per_group), PIECES, 1),
            (self.descriptors, self._ring.current, 0),
            (BLOCK, PIECES),
            (),
        )
