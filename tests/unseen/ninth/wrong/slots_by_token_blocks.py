"""As baseline, but a slots program takes a block of tokens, whatever requests they belong to.

A program per request leaves most of a block idle in decode steps, and one for the padding of a
whole group is slow. Here programs cover the group's slots evenly. Each counts the requests that
begin at or before a token.

Wrong: it counts all entries of `query_start_loc`, which may be longer than R + 1; what lies there
is
not to be looked at.
Shows: slots with a `query_start_loc` that has old, smaller numbers behind its R + 1 entries.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    INPUTS,
    MAX_NUM_TOKENS,
    SLOTS,
    SOURCE,
    WIDTH,
)
from bt_kernels.device_code.parts import _row
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.baseline import Variant as Base

BLOCK = 128


@triton.jit(do_not_specialize=["num_reqs", "num_starts"], do_not_specialize_on_alignment=INPUTS)
def slots_of_tokens_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    num_starts,
    PAD: tl.constexpr,
    STARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots of a block of tokens, the padding included; grid `(G, blocks)`."""
    group = tl.program_id(0).to(tl.int64)
    tokens = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    width = tl.load(descriptor + WIDTH)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    num_tokens = tl.load(query_start_loc + num_reqs)
    real = tokens < num_tokens
    found = tl.zeros([BLOCK], dtype=tl.int32)
    for first in range(0, num_starts, STARTS):
        nth = first + tl.arange(0, STARTS)
        starts = tl.load(query_start_loc + nth, mask=nth < num_starts, other=2147483647)
        found += tl.sum((starts[None, :] <= tokens[:, None]).to(tl.int32), axis=1)
    batch_index = tl.where(real, found - 1, num_reqs)
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    position = tl.load(positions + tokens, mask=real, other=-1)
    inside = (row >= 0) & (position >= 0) & (position < tl.load(descriptor + CAPACITY))
    position = tl.where(inside, position, 0)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    block_id = tl.load(source + row * width + position // block_size, mask=inside, other=0)
    slot = block_id.to(tl.int64) * block_size + position % block_size
    slot = tl.where(inside, slot, PAD)
    tl.store(slots + tokens, slot, mask=tokens < tl.load(descriptor + MAX_NUM_TOKENS))


class Variant(Base):
    """Own kernel for plain slots."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        layout = self.layout
        sizes = (idx_mapping.shape[0], query_start_loc.shape[0])
        self.launch(
            slots_of_tokens_kernel,
            (layout.num_groups, triton.cdiv(layout.max_num_batched_tokens, BLOCK), 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, *sizes),
            (PAD_SLOT_ID, 32, BLOCK),
            (idx_mapping,),
        )
