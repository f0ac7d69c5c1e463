"""Whole blocks for each rank, decided by the block size of the first group alone.

Shows: context parallelism with an interleave that is the block size of group 0 and a proper divisor
of the block size of another sharded group: slots of that group are on the wrong rank and place.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    CP_RANK,
    CP_SIZE,
    DESCRIPTOR_FIELDS,
    SLOTS,
    SOURCE,
    WIDTH,
)
from bt_kernels.device_code.parts import _pad_slots, _row
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base

BLOCK = 128


@triton.jit(do_not_specialize=["num_reqs"])
def block_slots_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots where ranks take turns by whole blocks; grid `(G, R + 1)`."""
    group = tl.program_id(0).to(tl.int64)
    request = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if request < num_reqs:
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
        width = tl.load(descriptor + WIDTH)
        block_size = tl.load(descriptor + BLOCK_SIZE)
        ranks = tl.load(descriptor + CP_SIZE)
        rank = tl.load(descriptor + CP_RANK)
        row = _row(descriptor, idx_mapping, num_reqs, request)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        end = tl.load(query_start_loc + request + 1)
        for first in range(tl.load(query_start_loc + request), end, BLOCK):
            token = first + tl.arange(0, BLOCK)
            position = tl.load(positions + token, mask=token < end, other=0)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            block = position // block_size
            inside &= block % ranks == rank
            place = source + row * width + block // ranks
            block_id = tl.load(place, mask=inside & (token < end), other=0).to(tl.int64)
            slot = tl.where(inside, block_id * block_size + position % block_size, PAD)
            tl.store(slots + token, slot, mask=token < end)
    else:
        _pad_slots(descriptors, query_start_loc, None, None, None, num_reqs, group, PAD, BLOCK)


class Variant(Base):
    """Two divisions less where ranks take turns by whole blocks."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out) -> None:
        layout = self.layout
        whole_blocks = self.sharded and layout.cp_interleave == layout.block_sizes[0]
        if not whole_blocks or out is not None:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        self.launch(
            block_slots_kernel,
            (layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs),
            (PAD_SLOT_ID, BLOCK),
            (idx_mapping, query_start_loc, positions),
        )
