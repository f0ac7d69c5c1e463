"""Divides positions by the block size in float32.

It shows at the last token of a block beyond position 2^24: the position is rounded up to the next
block, so the column is one too high.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    SLOTS,
    SOURCE,
    WIDTH,
    _pad_slots,
)
from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import PAD_SLOT_ID


@triton.jit(do_not_specialize=["num_reqs"])
def slots_kernel(
    descriptors, idx_mapping, starts, positions, num_reqs, PAD: tl.constexpr, BLOCK: tl.constexpr
):
    """Slots by a multiplication with the reciprocal; grid `(G, R + 1)`."""
    group = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if index < num_reqs:
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
        size = tl.load(descriptor + BLOCK_SIZE)
        row = tl.load(idx_mapping + index).to(tl.int64)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        end = tl.load(starts + index + 1)
        for first in range(tl.load(starts + index), end, BLOCK):
            token = first + tl.arange(0, BLOCK)
            position = tl.load(positions + token, mask=token < end, other=0)
            inside = (position >= 0) & (position < capacity)
            column = (position.to(tl.float32) / size.to(tl.float32)).to(tl.int64)
            place = source + row * tl.load(descriptor + WIDTH) + column
            block_id = tl.load(place, mask=inside & (token < end), other=0).to(tl.int64)
            slot = block_id * size + (position - column * size)
            tl.store(slots + token, tl.where(inside, slot, PAD), mask=token < end)
    else:
        _pad_slots(descriptors, starts, None, None, None, num_reqs, group, PAD, BLOCK)


class Variant(DeviceBlockTables):
    """As baseline, without integer divisions in the plain slots."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        arguments = (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs)
        grid = (self.layout.num_groups, num_reqs + 1, 1)
        self.launch(slots_kernel, grid, arguments, (PAD_SLOT_ID, 1024), (idx_mapping,))
