"""As fused_apply, but slots of a pure decode step come from one flat kernel.

With as many tokens as requests, token i is that of request i, so `query_start_loc` is not read, and
programs are for 128 slots each, the padding included, rather than for one request each.

Wrong: as many positions as requests does not mean one token each: a request may have none, and
another two, or `positions` may be longer than the tokens.

Shows: `positions` with R elements where `query_start_loc` is not 0, 1, ..., R.
"""

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


@triton.jit(do_not_specialize=["num_reqs"])
def decode_slots_kernel(
    descriptors, idx_mapping, positions, num_reqs, PAD: tl.constexpr, TOKENS: tl.constexpr
):
    """Slots of one token per request, and the padding; grid `(G, chunks)`."""
    descriptor = descriptors + tl.program_id(0).to(tl.int64) * DESCRIPTOR_FIELDS
    tokens = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    real = tokens < num_reqs
    row = _row(descriptor, idx_mapping, num_reqs, tokens)
    position = tl.load(positions + tokens, mask=real, other=-1)
    inside = (row >= 0) & (position >= 0) & (position < tl.load(descriptor + CAPACITY))
    position = tl.where(inside, position, 0)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    place = row * tl.load(descriptor + WIDTH) + position // block_size
    block_id = tl.load(source + place, mask=inside, other=0).to(tl.int64)
    slot = tl.where(inside, block_id * block_size + position % block_size, PAD)
    slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    tl.store(slots + tokens, slot, mask=tokens < tl.load(descriptor + MAX_NUM_TOKENS))


class Variant(Base):
    """Replaces the launch of slots for decodes."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        num_reqs = idx_mapping.shape[0]
        if positions.shape[0] != num_reqs or self.sharded or out is not None:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        chunks = triton.cdiv(self.layout.max_num_batched_tokens, TOKENS)
        self.launch(
            decode_slots_kernel,
            (self.layout.num_groups, chunks, 1),
            (self.descriptors, idx_mapping, positions, num_reqs),
            (PAD_SLOT_ID, TOKENS),
            (idx_mapping, positions),
        )
