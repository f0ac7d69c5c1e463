"""Positions are made int32 before they are compared with the capacity of a row.

Shows when a position does not fit int32: one from 2**32 on, which no row holds, wraps to a small
one and gets a slot; and one from 2**31 on, in a row that holds as many tokens, gets PAD.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    MAX_NUM_TOKENS,
    NUM_ROWS,
    SLOTS,
    SOURCE,
    WIDTH,
)
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


@triton.jit(do_not_specialize=["num_reqs"])
def slots_kernel(
    descriptors, mapping, starts, positions, num_reqs, PAD: tl.constexpr, BLOCK: tl.constexpr
):
    """Positions to slots, divided in 32 bits; grid `(G, R + 1)`, the last program pads."""
    descriptor = descriptors + tl.program_id(0).to(tl.int64) * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    width = tl.load(descriptor + WIDTH)
    block_size = tl.load(descriptor + BLOCK_SIZE).to(tl.int32)
    index = tl.program_id(1)
    begin = tl.load(starts + index)
    if index < num_reqs:
        row = tl.load(mapping + index).to(tl.int64)
        exists = (row >= 0) & (row < tl.load(descriptor + NUM_ROWS))
        capacity = tl.where(exists, tl.load(descriptor + CAPACITY), 0)
        end = tl.load(starts + index + 1)
        for first in range(begin, end, BLOCK):
            tokens = first + tl.arange(0, BLOCK)
            mask = tokens < end
            position = tl.load(positions + tokens, mask=mask, other=0).to(tl.int32)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            column = position // block_size
            ids = tl.load(source + row * width + column, mask=mask & inside, other=0)
            slot = ids.to(tl.int64) * block_size + position % block_size
            tl.store(slots + tokens, tl.where(inside, slot, PAD), mask=mask)
    else:
        end = tl.load(descriptor + MAX_NUM_TOKENS).to(tl.int32)
        for first in range(begin, end, BLOCK):
            tokens = first + tl.arange(0, BLOCK)
            tl.store(slots + tokens, tl.full([BLOCK], PAD, tl.int64), mask=tokens < end)


class Variant(Base):
    """Maps the plain path without a division of int64."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        arguments = (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs)
        grid = (self.layout.num_groups, num_reqs + 1, 1)
        self.launch(slots_kernel, grid, arguments, (PAD_SLOT_ID, 256), (idx_mapping,))
