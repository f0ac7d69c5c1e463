"""As fused_apply, but context parallelism with shifts and masks in place of 64-bit divisions.

If block sizes are powers of two, the interleave divides them and is one, too; a division by either
is a shift, and a remainder a mask. Other layouts keep the shipped kernel.

Wrong: the number of ranks need not be a power of two, and nothing looks at it; the turn of a rank
is taken by a mask.
Shows: slots with block sizes of powers of two and `cp_size=3`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SHIFT,
    BLOCK_SIZE,
    CAPACITY,
    CP_INTERLEAVE,
    CP_RANK,
    CP_SIZE,
    DESCRIPTOR_FIELDS,
    INPUTS,
    SOURCE,
    STEP_SIZES,
    WIDTH,
    _pad_slots,
    _slots,
)
from bt_kernels.device_code.parts import _row
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base

BLOCK = 256


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def masked_slots_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    out,
    out_stride,
    out_size,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots of shared sequences; grid `(G, R + 1)`, the last program of a group pads."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if batch_index < num_reqs:
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        width = tl.load(descriptor + WIDTH)
        block_size = tl.load(descriptor + BLOCK_SIZE)
        shift = tl.load(descriptor + BLOCK_SHIFT)
        ranks = tl.load(descriptor + CP_SIZE)
        interleave = tl.load(descriptor + CP_INTERLEAVE)
        row = _row(descriptor, idx_mapping, num_reqs, batch_index)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        slots = _slots(descriptor, out, out_stride, group)
        first_token = tl.load(query_start_loc + batch_index)
        end_token = tl.load(query_start_loc + batch_index + 1)
        for first in range(first_token, end_token, BLOCK):
            tokens = first + tl.arange(0, BLOCK)
            mask = tokens < end_token
            position = tl.load(positions + tokens, mask=mask, other=0)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            # Of all blocks of tokens that ranks have side by side, every rank has one.
            column = (position >> shift) // ranks
            offset = position - (column << shift) * ranks
            turn = offset // interleave
            inside &= (turn & (ranks - 1)) == tl.load(descriptor + CP_RANK)
            local = turn // ranks * interleave + (offset & (interleave - 1))
            block_id = tl.load(source + row * width + column, mask=mask & inside, other=0)
            slot = (block_id.to(tl.int64) << shift) + (local & (block_size - 1))
            tl.store(slots + tokens, tl.where(inside, slot, PAD), mask=mask)
    else:
        _pad_slots(
            descriptors, query_start_loc, out, out_stride, out_size, num_reqs, group, PAD, BLOCK
        )


class Variant(Base):
    """Own kernel for context parallelism."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        sizes = self.layout.block_sizes
        if not self.sharded or any(size & (size - 1) for size in sizes):
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        its_out = (None, None, None) if out is None else (out, out.stride(0), out.shape[1])
        self.launch(
            masked_slots_kernel,
            (self.layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs, *its_out),
            (PAD_SLOT_ID, BLOCK),
            (idx_mapping, out),
        )
