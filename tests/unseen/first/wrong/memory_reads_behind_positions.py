"""Fault: positions are loaded 64 at a time without a mask, up to 63 behind their end.

Seen: reads behind the end of positions; what is read is not used, so that results are right.

The read ends the process if the page behind is not mapped.
"""

from __future__ import annotations

import torch
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
from bt_kernels.fusions import FusedApply
from bt_kernels.layout import PAD_SLOT_ID


@triton.jit(do_not_specialize=["num_reqs"])
def _slots_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots of one request; after the last one, the padding."""
    descriptor = descriptors + tl.program_id(0).to(tl.int64) * DESCRIPTOR_FIELDS
    batch_index = tl.program_id(1).to(tl.int64)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    width = tl.load(descriptor + WIDTH)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    capacity = tl.load(descriptor + CAPACITY)
    first_token = tl.load(query_start_loc + batch_index)
    if batch_index < num_reqs:
        end = tl.load(query_start_loc + batch_index + 1)
        row = tl.load(idx_mapping + batch_index).to(tl.int64)
        capacity = tl.where(row < 0, 0, capacity)
        for first in range(first_token, end, BLOCK):
            tokens = first + tl.arange(0, BLOCK)
            position = tl.load(positions + tokens)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            place = row * width + position // block_size
            block_id = tl.load(source + place, mask=inside & (tokens < end), other=0)
            slot = block_id.to(tl.int64) * block_size + position % block_size
            tl.store(slots + tokens, tl.where(inside, slot, PAD), mask=tokens < end)
    else:
        end = tl.load(descriptor + MAX_NUM_TOKENS).to(tl.int32)
        for first in range(first_token, end, BLOCK):
            tokens = first + tl.arange(0, BLOCK)
            tl.store(slots + tokens, tl.full([BLOCK], PAD, dtype=tl.int64), mask=tokens < end)


class Variant(FusedApply):
    """Slots by a kernel with one mask fewer."""

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        if self.sharded or out is not None:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        self.launch(
            _slots_kernel,
            (self.layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs),
            (PAD_SLOT_ID, 64),
            (idx_mapping,),
        )
