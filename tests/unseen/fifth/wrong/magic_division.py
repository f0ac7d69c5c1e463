"""Division by the block size as a multiplication with 24 bits, which are too few for long rows.

Shows: block sizes that are no power of two, at the last tokens of a block of a long row: with blocks
of 784 tokens (hybrid models) from position 43,903 on, with small block sizes only after millions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bt_kernels.device_code import BLOCK_SIZE, CAPACITY, DESCRIPTOR_FIELDS, SLOTS, SOURCE, WIDTH
from bt_kernels.device_code.parts import _pad_slots, _row
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.baseline import Variant as Base

BLOCK = 128
LARGEST = 4096


@triton.jit(do_not_specialize=["num_reqs"])
def magic_slots_kernel(
    descriptors,
    magics,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots without a division; grid `(G, R + 1)`."""
    group = tl.program_id(0).to(tl.int64)
    request = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if request < num_reqs:
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
        width = tl.load(descriptor + WIDTH)
        block_size = tl.load(descriptor + BLOCK_SIZE)
        magic = tl.load(magics + group)
        row = _row(descriptor, idx_mapping, num_reqs, request)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        end = tl.load(query_start_loc + request + 1)
        for first in range(tl.load(query_start_loc + request), end, BLOCK):
            token = first + tl.arange(0, BLOCK)
            position = tl.load(positions + token, mask=token < end, other=0)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            column = (position * magic) >> 24
            place = source + row * width + tl.minimum(column, width - 1)
            block_id = tl.load(place, mask=inside & (token < end), other=0).to(tl.int64)
            slot = block_id * block_size + (position - column * block_size)
            tl.store(slots + token, tl.where(inside, slot, PAD), mask=token < end)
    else:
        _pad_slots(descriptors, query_start_loc, None, None, None, num_reqs, group, PAD, BLOCK)


class Variant(Base):
    """No int64 division, which takes dozens of instructions, in slots."""

    def __init__(self, layout, device, **options) -> None:
        super().__init__(layout, device, **options)
        magics = [-(-(1 << 24) // size) for size in layout.block_sizes]
        self._magics = torch.tensor(magics, dtype=torch.int64, device=self.device)

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out) -> None:
        layout = self.layout
        if self.sharded or out is not None or max(layout.block_sizes) > LARGEST:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        batch = (idx_mapping, query_start_loc, positions)
        self.launch(
            magic_slots_kernel,
            (layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, self._magics, *batch, num_reqs),
            (PAD_SLOT_ID, BLOCK),
            batch,
        )
