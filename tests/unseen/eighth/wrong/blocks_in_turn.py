"""As baseline, but ranks that take whole blocks in turn have a kernel without the interleave.

With an interleave as long as a block, block `p // block_size` of the sequence is one block of rank
`block % cp_size`, and the offset in it stays: three divisions fewer per token.

Wrong: whether the interleave is as long as a block is asked of the first group alone; a sharded
group with longer blocks is mapped in the same way.

Shows: context parallelism with `cp_interleave == block_sizes[0]` and another sharded group whose
blocks are a multiple of it.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    CP_RANK,
    CP_SIZE,
    DESCRIPTOR_FIELDS,
    MAX_NUM_TOKENS,
    SLOTS,
    SOURCE,
    WIDTH,
)
from bt_kernels.device_code.parts import _row
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.baseline import Variant as Base

TOKENS = 256


@triton.jit(do_not_specialize=["num_reqs"])
def slots_in_turn_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    PAD: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Slots of one request, or the padding; grid `(G, R + 1)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    begin = tl.load(query_start_loc + batch_index)
    if batch_index == num_reqs:
        end = tl.load(descriptor + MAX_NUM_TOKENS)
        for first in range(begin, end, TOKENS):
            tokens = first + tl.arange(0, TOKENS)
            tl.store(slots + tokens, tl.full([TOKENS], PAD, tl.int64), mask=tokens < end)
    else:
        end = tl.load(query_start_loc + batch_index + 1)
        row = _row(descriptor, idx_mapping, num_reqs, batch_index)
        width = tl.load(descriptor + WIDTH)
        block_size = tl.load(descriptor + BLOCK_SIZE)
        ranks = tl.load(descriptor + CP_SIZE)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32)) + row * width
        for first in range(begin, end, TOKENS):
            tokens = first + tl.arange(0, TOKENS)
            mask = tokens < end
            position = tl.load(positions + tokens, mask=mask, other=0)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            block = position // block_size
            inside &= block % ranks == tl.load(descriptor + CP_RANK)
            block_id = tl.load(source + block // ranks, mask=mask & inside, other=0)
            slot = block_id.to(tl.int64) * block_size + position % block_size
            tl.store(slots + tokens, tl.where(inside, slot, PAD), mask=mask)


class Variant(Base):
    """Replaces the launch of slots where ranks take whole blocks."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        layout = self.layout
        if not self.sharded or layout.cp_interleave != layout.block_sizes[0] or out is not None:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        self.launch(
            slots_in_turn_kernel,
            (layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs),
            (PAD_SLOT_ID, TOKENS),
            (idx_mapping, query_start_loc, positions),
        )
