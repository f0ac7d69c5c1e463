"""Drops the last 128 ids of a staged write whose length is an exact multiple of 128.

It shows when a row is given exactly 128, 256, … block ids in one step: the remainder that follows
the whole chunks is looked for behind them, and there is none.
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
from bt_kernels.fusions import FusedApply, FusedGatherSlots


@triton.jit(do_not_specialize=["first_record"])
def apply_kernel(descriptors, staging, first_record, BLOCK: tl.constexpr):
    """Whole chunks without a mask, then the remainder with one; grid `(records,)`."""
    record = staging + (first_record + tl.program_id(0)) * RECORD_FIELDS
    descriptor = descriptors + tl.load(record).to(tl.int64) * DESCRIPTOR_FIELDS
    row = tl.load(record + 1).to(tl.int64)
    start = tl.load(record + 2)
    length = tl.load(record + 3)
    ids = staging + tl.load(record + 4)
    width = tl.load(descriptor + WIDTH)
    table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32)) + row * width + start
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    tl.store(num_blocks + row, start + length)
    lanes = tl.arange(0, BLOCK)
    for first in range(0, length - BLOCK, BLOCK):
        tl.store(table + first + lanes, tl.load(ids + first + lanes))
    rest = length // BLOCK * BLOCK + lanes
    tl.store(table + rest, tl.load(ids + rest, mask=rest < length), mask=rest < length)


class Variant(FusedApply, FusedGatherSlots):
    """As fused, with an apply that has no masks in whole chunks."""

    def _launch_apply(self, records_per_group):
        self.launch(
            apply_kernel,
            (sum(records_per_group), 1, 1),
            (self.descriptors, self._ring.current, 0),
            (128,),
            (),
        )
