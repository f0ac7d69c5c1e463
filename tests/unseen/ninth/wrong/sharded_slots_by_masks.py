"""As fused_apply, but slots under context parallelism by shifts and masks.

What it does: its own kernel for layouts with ranks. Divisions of int64 take a hundred instructions,
so where the block size is a power of two, positions are shifted and masked.

Wrong: the offset is masked by the tokens of all ranks less one, which is no mask unless the number
of ranks is a power of two as well.

Shows: slots with `cp_size=3` and a block size of 4, from position 4 on.
"""

import triton
import triton.language as tl

from bt_kernels.device_code.fields import (
    BLOCK_SHIFT,
    BLOCK_SIZE,
    CAPACITY,
    CP_INTERLEAVE,
    CP_RANK,
    CP_SIZE,
    DESCRIPTOR_FIELDS,
    SOURCE,
    WIDTH,
)
from bt_kernels.device_code.parts import _pad_slots, _row, _slots
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base

BLOCK = 256


@triton.jit(do_not_specialize=["num_reqs", "out_stride", "out_size"])
def sharded_slots_kernel(
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
    """Slots of one request in one group; grid `(G, R + 1)`, the last program pads."""
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
        rank = tl.load(descriptor + CP_RANK)
        slots = _slots(descriptor, out, out_stride, group)
        row = _row(descriptor, idx_mapping, num_reqs, batch_index)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        span = block_size * ranks
        begin = tl.load(query_start_loc + batch_index)
        end = tl.load(query_start_loc + batch_index + 1)
        for first in range(begin, end, BLOCK):
            tokens = first + tl.arange(0, BLOCK)
            mask = tokens < end
            position = tl.load(positions + tokens, mask=mask, other=0)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            if shift >= 0:
                column = (position >> shift) // ranks
                offset = position & (span - 1)
            else:
                column = position // span
                offset = position % span
            turn = offset // interleave
            inside &= turn % ranks == rank
            local = turn // ranks * interleave + offset % interleave
            block_id = tl.load(source + row * width + column, mask=mask & inside, other=0)
            slot = tl.where(inside, block_id.to(tl.int64) * block_size + local, PAD)
            tl.store(slots + tokens, slot, mask=mask)
    else:
        _pad_slots(
            descriptors, query_start_loc, out, out_stride, out_size, num_reqs, group, PAD, BLOCK
        )


class Variant(Base):
    """Its own slots if there are ranks."""

    launch_paths = ("jit",)

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if not self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        caller = (None, None, None) if out is None else (out, out.stride(0), out.shape[1])
        self.launch(
            sharded_slots_kernel,
            (self.layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs, *caller),
            (PAD_SLOT_ID, BLOCK),
            (idx_mapping, out),
        )
