"""Computes slots in int32 where the largest block id of a program's tokens lets the product fit.

Shows with block ids far below 0 (any int32 is legal) and none that is as large: the product of an id
below -2**31 / block_size wraps. Slots into slot_mappings without context parallelism.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code import BLOCK_SIZE, CAPACITY, DESCRIPTOR_FIELDS, SLOTS, SOURCE, WIDTH
from bt_kernels.device_code.parts import _pad_slots, _row
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


@triton.jit(do_not_specialize=["num_reqs"])
def narrow_slots_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots by products of int32 if they fit; grid `(G, R + 1)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    if batch_index < num_reqs:
        descriptor = descriptors + group * DESCRIPTOR_FIELDS
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
        width = tl.load(descriptor + WIDTH)
        block_size = tl.load(descriptor + BLOCK_SIZE)
        row = _row(descriptor, idx_mapping, num_reqs, batch_index)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        first_token = tl.load(query_start_loc + batch_index)
        end_token = tl.load(query_start_loc + batch_index + 1)
        for first in range(first_token, end_token, BLOCK):
            token = first + tl.arange(0, BLOCK)
            mask = token < end_token
            position = tl.load(positions + token, mask=mask, other=0)
            inside = mask & (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            block_id = tl.load(source + row * width + position // block_size, mask=inside, other=0)
            offset = position % block_size
            largest = tl.max(block_id, axis=0)
            if largest < 2147483647 // block_size:
                slot = (block_id * block_size.to(tl.int32) + offset.to(tl.int32)).to(tl.int64)
            else:
                slot = block_id.to(tl.int64) * block_size + offset
            tl.store(slots + token, tl.where(inside, slot, PAD), mask=mask)
    else:
        _pad_slots(descriptors, query_start_loc, None, None, None, num_reqs, group, PAD, BLOCK)


class Variant(Base):
    """Caches have fewer than 2**31 slots, so int32 nearly always does."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        self.launch(
            narrow_slots_kernel,
            (self.layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs),
            (PAD_SLOT_ID, 512),
            (idx_mapping,),
        )
