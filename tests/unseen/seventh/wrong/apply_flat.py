"""As fused, but staged ids are cut evenly into programs, however long the intervals (2 launches).

Wrong: the number of blocks of a row is stored with the first id of its interval. An interval
without ids has none, so the device keeps the number of blocks that the row had.

Shows: overwriting a row that has blocks with an empty list in a group, apply, and a gather of it.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, RECORD_FIELDS, SOURCE, WIDTH
from bt_kernels.variants.fused import Variant as Base

BLOCK = 256


@triton.jit(do_not_specialize=["num_records", "num_ids", "num_steps"])
def apply_flat_kernel(descriptors, staging, num_records, num_ids, num_steps, BLOCK: tl.constexpr):
    """Writes a block of the staged ids, whatever rows they are of; grid `(blocks,)`."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < num_ids
    place = num_records * RECORD_FIELDS + index
    # The last record whose ids begin at or before the place.
    low = tl.zeros_like(index)
    high = low + num_records
    for _ in range(0, num_steps):
        middle = (low + high) // 2
        begin = tl.load(staging + middle * RECORD_FIELDS + 4, mask=mask, other=0)
        after = begin > place
        high = tl.where(after, middle, high)
        low = tl.where(after, low, middle)
    record = staging + low * RECORD_FIELDS
    group = tl.load(record, mask=mask, other=0).to(tl.int64)
    row = tl.load(record + 1, mask=mask, other=0).to(tl.int64)
    start = tl.load(record + 2, mask=mask, other=0)
    length = tl.load(record + 3, mask=mask, other=0)
    offset = place - tl.load(record + 4, mask=mask, other=0)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    ids = tl.load(staging + place, mask=mask, other=0)
    tl.store(table + row * width + start + offset, ids, mask=mask)
    tl.store(num_blocks + row, start + length, mask=mask & (offset == 0))


class Variant(Base):
    """Replaces the launch that applies."""

    def _launch_apply(self, records_per_group):
        num_records, num_ids = sum(records_per_group), self._staged.num_ids
        if not num_ids:
            return
        self.launch(
            apply_flat_kernel,
            (triton.cdiv(num_ids, BLOCK), 1, 1),
            (
                *(self.descriptors, self._ring.current),
                *(num_records, num_ids, num_records.bit_length()),
            ),
            (BLOCK,),
            (),
        )
