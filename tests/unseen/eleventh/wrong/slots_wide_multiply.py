"""The slots kernel widens block ids as unsigned (mul.wide.u32), so negative ids become huge.

Shows when a token's block id in the source table is below 0, which is legal: its slot is 2**32
block sizes too high.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    INPUTS,
    SOURCE,
    STEP_SIZES,
    WIDTH,
)
from bt_kernels.device_code.parts import _local_position, _pad_slots, _row, _slots
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base

BLOCK = 256
PARTS = 2


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def slots_wide_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    out,
    out_stride,
    out_size,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Grid `(G, R + 1, PARTS)`: every `PARTS`-th block of a request's tokens; the last row pads."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if batch_index < num_reqs:
        slots = _slots(descriptor, out, out_stride, group)
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        width = tl.load(descriptor + WIDTH)
        block_size = tl.load(descriptor + BLOCK_SIZE)
        row = _row(descriptor, idx_mapping, num_reqs, batch_index)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        begin = tl.load(query_start_loc + batch_index)
        end = tl.load(query_start_loc + batch_index + 1)
        for first in range(begin + part * BLOCK, end, PARTS * BLOCK):
            tokens = first + tl.arange(0, BLOCK)
            mask = tokens < end
            position = tl.load(positions + tokens, mask=mask, other=-1)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            if SHARDED:
                position, mine = _local_position(descriptor, position, block_size)
                inside &= mine
            column = position // block_size
            block_id = tl.load(source + row * width + column, mask=inside, other=0)
            # One mul.wide.u32 instead of the three multiplications of an int64 product.
            wide = block_id.to(tl.uint32, bitcast=True).to(tl.int64)
            slot = wide * block_size + (position - column * block_size)
            tl.store(slots + tokens, tl.where(inside, slot, PAD), mask=mask)
    elif part == 0:
        _pad_slots(
            descriptors, query_start_loc, out, out_stride, out_size, num_reqs, group, PAD, 1024
        )


class Variant(Base):
    """Slots with cheaper arithmetic, and two programs a request."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        num_reqs = idx_mapping.shape[0]
        stride, size = (None, None) if out is None else (out.stride(0), out.shape[1])
        self.launch(
            slots_wide_kernel,
            (self.layout.num_groups, num_reqs + 1, PARTS),
            (
                *(self.descriptors, idx_mapping, query_start_loc, positions),
                *(num_reqs, out, stride, size),
            ),
            (self.sharded, PAD_SLOT_ID, BLOCK, PARTS),
            (idx_mapping, out),
        )
