"""As fused_apply, but slots in spans of tokens, whose requests are searched (3 launches a step).

Wrong: the search finds the first request that starts at or after a token, and takes the one before
unless it starts right there. Of several that start there it takes the first, which has no tokens.

Shows: a request without tokens right before one with tokens, whose first token then gets a slot of
the row of the empty one.
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

SPAN = 256


@triton.jit
def _request_of(query_start_loc, token, num_reqs, num_steps, mask):
    """The request of each token, by bisection."""
    low = tl.zeros_like(token)
    high = low + num_reqs
    for _ in range(0, num_steps):
        middle = (low + high) // 2
        before = tl.load(query_start_loc + middle, mask=mask, other=0) < token
        low = tl.where(before, middle + 1, low)
        high = tl.where(before, high, middle)
    start = tl.load(query_start_loc + low, mask=mask, other=0)
    return tl.where(start == token, low, low - 1)


@triton.jit(do_not_specialize=["num_reqs", "num_steps"])
def slots_search_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    num_steps,
    PAD: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Slots of a span of the buffer, padding included; grid `(G, spans)`."""
    descriptor = descriptors + tl.program_id(0).to(tl.int64) * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    width = tl.load(descriptor + WIDTH)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    token = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    mask = token < tl.load(query_start_loc + num_reqs)
    request = _request_of(query_start_loc, token, num_reqs, num_steps, mask)
    row = tl.load(idx_mapping + request, mask=mask, other=-1).to(tl.int64)
    row = tl.where(row < tl.load(descriptor + NUM_ROWS), row, -1)
    position = tl.load(positions + token, mask=mask, other=-1)
    inside = (position >= 0) & (position < tl.load(descriptor + CAPACITY)) & (row >= 0)
    position = tl.where(inside, position, 0)
    column = position // block_size
    block_id = tl.load(source + row * width + column, mask=inside, other=0)
    slot = block_id.to(tl.int64) * block_size + position % block_size
    end = tl.load(descriptor + MAX_NUM_TOKENS)
    tl.store(slots + token, tl.where(inside, slot, PAD), mask=token < end)


class Variant(Base):
    """Replaces the launch of the plain slots."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        spans = triton.cdiv(self.layout.max_num_batched_tokens, SPAN)
        self.launch(
            slots_search_kernel,
            (self.layout.num_groups, spans, 1),
            (
                *(self.descriptors, idx_mapping, query_start_loc, positions),
                *(num_reqs, num_reqs.bit_length()),
            ),
            (PAD_SLOT_ID, SPAN),
            (idx_mapping, query_start_loc, positions),
        )
