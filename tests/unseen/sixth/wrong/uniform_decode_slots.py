"""Takes a batch with as many positions as requests for a decode of one token each.

Shows when positions has R elements but tokens are spread otherwise: a request without tokens beside
one with two, or a positions tensor with room behind T. Any slots call (alone, combined, step).
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

BLOCK = 256


@triton.jit(do_not_specialize=["num_reqs"])
def decode_slots_kernel(
    descriptors, idx_mapping, positions, num_reqs, PAD: tl.constexpr, BLOCK: tl.constexpr
):
    """Token i is request i's; grid `(G, blocks of the buffer)`."""
    descriptor = descriptors + tl.program_id(0).to(tl.int64) * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    width = tl.load(descriptor + WIDTH)
    size = tl.load(descriptor + BLOCK_SIZE)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = _row(descriptor, idx_mapping, num_reqs, token)
    position = tl.load(positions + token, mask=token < num_reqs, other=-1)
    inside = (row >= 0) & (position >= 0) & (position < tl.load(descriptor + CAPACITY))
    position = tl.where(inside, position, 0)
    block_id = tl.load(source + row * width + position // size, mask=inside, other=0)
    slot = tl.where(inside, block_id.to(tl.int64) * size + position % size, PAD)
    tl.store(slots + token, slot, mask=token < tl.load(descriptor + MAX_NUM_TOKENS))


class Variant(Base):
    """A decode needs no `query_start_loc`, and no program per request."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        num_reqs = idx_mapping.shape[0]
        if out is not None or self.sharded or positions.shape[0] != num_reqs:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        blocks = triton.cdiv(self.layout.max_num_batched_tokens, BLOCK)
        self.launch(
            decode_slots_kernel,
            (self.layout.num_groups, blocks, 1),
            (self.descriptors, idx_mapping, positions, num_reqs),
            (PAD_SLOT_ID, BLOCK),
            (idx_mapping,),
        )
