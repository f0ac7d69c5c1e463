"""The column of a token is computed in float32.

Wrong from position 2^24 on, at the last tokens of a block.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.fields import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    SLOTS,
    SOURCE,
    WIDTH,
)
from bt_kernels.device_code.parts import _pad_slots
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as FusedApply


@triton.jit
def slots_kernel(
    descriptors, idx_mapping, starts, positions, num_reqs, PAD: tl.constexpr, BLOCK: tl.constexpr
):
    group = tl.program_id(0).to(tl.int64)
    request = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if request == num_reqs:
        _pad_slots(descriptors, starts, None, None, None, num_reqs, group, PAD, BLOCK)
    else:
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
        width = tl.load(descriptor + WIDTH)
        block_size = tl.load(descriptor + BLOCK_SIZE)
        row = tl.load(idx_mapping + request).to(tl.int64)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        end = tl.load(starts + request + 1)
        for first in range(tl.load(starts + request), end, BLOCK):
            tokens = first + tl.arange(0, BLOCK)
            mask = tokens < end
            position = tl.load(positions + tokens, mask=mask, other=0)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            column = (position.to(tl.float32) / block_size.to(tl.float32)).to(tl.int64)
            block_id = tl.load(source + row * width + column, mask=mask & inside, other=0)
            slot = block_id.to(tl.int64) * block_size + position % block_size
            tl.store(slots + tokens, tl.where(inside, slot, PAD), mask=mask)


class Variant(FusedApply):
    """Replaces the launch of the slots."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        self.launch(
            slots_kernel,
            (self.layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs),
            (PAD_SLOT_ID, 256),
            (idx_mapping,),
        )
