"""A step with as many positions as requests is taken for a decode of one token for each request.

Shows: R requests, and `positions` of R elements, but other numbers of tokens: one request with two
tokens (speculation) and one with none; or dummies at the end of a batch whose `positions` is padded.
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

BLOCK = 32


@triton.jit(do_not_specialize=["num_reqs"])
def decode_slots_kernel(
    descriptors, idx_mapping, positions, num_reqs, PAD: tl.constexpr, BLOCK: tl.constexpr
):
    """Slots of a decode, `BLOCK` requests for each program; grid `(G, blocks of slots)`."""
    group = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    block_size = tl.load(descriptor + BLOCK_SIZE)
    row = _row(descriptor, idx_mapping, num_reqs, token)
    position = tl.load(positions + token, mask=token < num_reqs, other=-1)
    inside = (row >= 0) & (position >= 0) & (position < tl.load(descriptor + CAPACITY))
    position = tl.where(inside, position, 0)
    place = source + row * tl.load(descriptor + WIDTH) + position // block_size
    block_id = tl.load(place, mask=inside, other=0).to(tl.int64)
    slot = tl.where(inside, block_id * block_size + position % block_size, PAD)
    tl.store(slots + token, slot, mask=token < tl.load(descriptor + MAX_NUM_TOKENS))


class Variant(Base):
    """Decodes need no `query_start_loc`, nor a program for each request."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out) -> None:
        num_reqs = idx_mapping.shape[0]
        if positions.shape[0] != num_reqs or not num_reqs or out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        layout = self.layout
        size = max(layout.max_num_batched_tokens, num_reqs)
        self.launch(
            decode_slots_kernel,
            (layout.num_groups, triton.cdiv(size, BLOCK), 1),
            (self.descriptors, idx_mapping, positions, num_reqs),
            (PAD_SLOT_ID, BLOCK),
            (idx_mapping, positions),
        )
