"""Finds the request of each token by one block of 256 ends of query_start_loc.

Shows with batches of more than 257 requests: tokens of requests after number 256 are taken for that
one's. Slots into slot_mappings without context parallelism.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    MAX_NUM_TOKENS,
    SLOTS,
    SOURCE,
    WIDTH,
)
from bt_kernels.device_code.parts import _row
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base

TOKENS = 128
ENDS = 256  # max_num_seqs of the engine


@triton.jit(do_not_specialize=["num_reqs"])
def token_slots_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    PAD: tl.constexpr,
    ENDS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Slots and padding by blocks of tokens; grid `(G, blocks)`."""
    descriptor = descriptors + tl.program_id(0).to(tl.int64) * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    width = tl.load(descriptor + WIDTH)
    size = tl.load(descriptor + BLOCK_SIZE)
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    mask = token < tl.load(query_start_loc + num_reqs)
    index = tl.arange(0, ENDS)
    ends = tl.load(query_start_loc + 1 + index, mask=index < num_reqs, other=2147483647)
    request = tl.sum((ends[None, :] <= token[:, None]).to(tl.int32), axis=1)
    row = _row(descriptor, idx_mapping, num_reqs, request)
    position = tl.load(positions + token, mask=mask, other=-1)
    inside = (row >= 0) & (position >= 0) & (position < tl.load(descriptor + CAPACITY))
    position = tl.where(inside, position, 0)
    block_id = tl.load(source + row * width + position // size, mask=inside, other=0)
    slot = tl.where(inside, block_id.to(tl.int64) * size + position % size, PAD)
    tl.store(slots + token, slot, mask=token < tl.load(descriptor + MAX_NUM_TOKENS))


class Variant(Base):
    """Programs by tokens, so that a long prefill does not hold up the launch."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        blocks = triton.cdiv(self.layout.max_num_batched_tokens, TOKENS)
        self.launch(
            token_slots_kernel,
            (self.layout.num_groups, blocks, 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, idx_mapping.shape[0]),
            (PAD_SLOT_ID, ENDS, TOKENS),
            (idx_mapping,),
        )
