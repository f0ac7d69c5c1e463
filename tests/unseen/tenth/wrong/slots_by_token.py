"""As fused_apply, but slots have a program for each 64 tokens, whatever requests these are of.

A long prefill is then divided among many programs, and decodes share one. A token's request is the
number of starts up to it, less one; the same programs pad the rest of the buffer.

Wrong: all elements of `query_start_loc` are taken for starts. It may be longer than the batch, and
    what is behind R + 1 elements, such as zeros or an earlier step's, is counted, too.
Shows: slots with a `query_start_loc` whose elements behind R + 1 are 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    NUM_ROWS,
    SOURCE,
    WIDTH,
    _local_position,
    _slots,
)
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base

TOKENS = 64
LATER = 2**31 - 1


@triton.jit(do_not_specialize=["num_reqs", "num_starts", "out_stride", "num_slots"])
def slots_by_token_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    num_starts,
    out,
    out_stride,
    num_slots,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    LATER: tl.constexpr,
    STARTS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Slots of `TOKENS` tokens of a group, or their padding; grid `(G, tiles)`."""
    group = tl.program_id(0).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    slots = _slots(descriptor, out, out_stride, group)
    tokens = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    live = tokens < tl.load(query_start_loc + num_reqs)
    nth = tl.arange(0, STARTS)
    starts = tl.load(query_start_loc + nth, mask=nth < num_starts, other=LATER)
    batch_index = tl.sum((starts[None, :] <= tokens[:, None]).to(tl.int32), axis=1) - 1
    known = live & (batch_index < num_reqs)
    row = tl.load(idx_mapping + batch_index, mask=known, other=-1).to(tl.int64)
    position = tl.load(positions + tokens, mask=live, other=-1)
    inside = (row >= 0) & (row < tl.load(descriptor + NUM_ROWS))
    inside &= (position >= 0) & (position < tl.load(descriptor + CAPACITY))
    position = tl.where(inside, position, 0)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    if SHARDED:
        position, mine = _local_position(descriptor, position, block_size)
        inside &= mine
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    block_id = tl.load(source + row * width + position // block_size, mask=inside, other=0)
    slot = block_id.to(tl.int64) * block_size + position % block_size
    tl.store(slots + tokens, tl.where(inside, slot, PAD), mask=tokens < num_slots)


class Variant(Base):
    """Slots by tiles of tokens."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        slots = self.slot_mappings if out is None else out
        num_slots = slots.shape[1]
        if not num_slots:
            return
        inputs = (idx_mapping, query_start_loc, positions)
        self.launch(
            slots_by_token_kernel,
            (self.layout.num_groups, triton.cdiv(num_slots, TOKENS), 1),
            (
                *(self.descriptors, *inputs, idx_mapping.shape[0], query_start_loc.shape[0]),
                *(out, slots.stride(0), num_slots),
            ),
            (
                *(self.sharded, PAD_SLOT_ID, LATER),
                *(triton.next_power_of_2(self.layout.max_num_reqs + 1), TOKENS),
            ),
            inputs if out is None else (*inputs, out),
        )
