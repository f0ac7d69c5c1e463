"""Shifts in place of divisions under context parallelism, if the sharded groups' sizes allow it.

Shows with cp_size above 1, where dcp_sharded is false for a group whose block size is no power of
two, all else being powers of two: that group's slots are wrong from its second block on.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    CP_RANK,
    DESCRIPTOR_FIELDS,
    SOURCE,
    WIDTH,
)
from bt_kernels.device_code.parts import _pad_slots, _row, _slots
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


@triton.jit(do_not_specialize=["num_reqs", "out_stride", "out_size"])
def shifted_slots_kernel(
    descriptors,
    shifts,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    out,
    out_stride,
    out_size,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots of one rank without a division; grid `(G, R + 1)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    if batch_index < num_reqs:
        descriptor = descriptors + group * DESCRIPTOR_FIELDS
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        width = tl.load(descriptor + WIDTH)
        block_size = tl.load(descriptor + BLOCK_SIZE)
        block_shift = tl.load(shifts + group * 3)
        rank_shift = tl.load(shifts + group * 3 + 1)
        turn_shift = tl.load(shifts + group * 3 + 2)
        rank = tl.load(descriptor + CP_RANK)
        slots = _slots(descriptor, out, out_stride, group)
        row = _row(descriptor, idx_mapping, num_reqs, batch_index)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        first_token = tl.load(query_start_loc + batch_index)
        end_token = tl.load(query_start_loc + batch_index + 1)
        for first in range(first_token, end_token, BLOCK):
            token = first + tl.arange(0, BLOCK)
            mask = token < end_token
            position = tl.load(positions + token, mask=mask, other=0)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            offset = position & ((1 << (block_shift + rank_shift)) - 1)
            turn = offset >> turn_shift
            inside &= (turn & ((1 << rank_shift) - 1)) == rank
            local = ((turn >> rank_shift) << turn_shift) | (offset & ((1 << turn_shift) - 1))
            column = position >> (block_shift + rank_shift)
            ids = tl.load(source + row * width + column, mask=mask & inside, other=0)
            slot = tl.where(inside, ids.to(tl.int64) * block_size + local, PAD)
            tl.store(slots + token, slot, mask=mask)
    else:
        _pad_slots(
            descriptors, query_start_loc, out, out_stride, out_size, num_reqs, group, PAD, BLOCK
        )


def _is_power(number):
    return number & (number - 1) == 0


class Variant(Base):
    """An int64 division takes a hundred instructions, and there are four per token."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        ways = list(zip(layout.block_sizes, layout.cp_sizes, layout.dcp_sharded, strict=True))
        self._shifts_only = self.sharded and all(
            _is_power(size) and _is_power(ranks) and _is_power(layout.cp_interleave)
            for size, ranks, sharded in ways
            if sharded
        )
        shifts = [
            [_log2(size), _log2(ranks), _log2(layout.cp_interleave if sharded else 1)]
            for size, ranks, sharded in ways
        ]
        self._shifts = torch.tensor(shifts, dtype=torch.int64, device=self.device)

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if not self._shifts_only:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        place = (None, None, None) if out is None else (out, out.stride(0), out.shape[1])
        num_reqs = idx_mapping.shape[0]
        batch = (idx_mapping, query_start_loc, positions, num_reqs)
        self.launch(
            shifted_slots_kernel,
            (self.layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, self._shifts, *batch, *place),
            (PAD_SLOT_ID, 512),
            (idx_mapping, out),
        )


def _log2(number):
    return number.bit_length() - 1
