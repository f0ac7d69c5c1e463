"""Takes every block size that is a multiple of 16 for a power of two.

It shows with block sizes such as 48, 80 or 784 (hybrid models have them): positions are shifted by
the place of the highest bit instead of divided.
"""

import torch
import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    SLOTS,
    SOURCE,
    WIDTH,
    _pad_slots,
)
from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import PAD_SLOT_ID


@triton.jit(do_not_specialize=["num_reqs"])
def slots_kernel(descriptors, shifts, idx_mapping, starts, positions, num_reqs, PAD: tl.constexpr):
    """Slots by shifts where the block size allows it; grid `(G, R + 1)`."""
    group = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if index < num_reqs:
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
        size = tl.load(descriptor + BLOCK_SIZE)
        shift = tl.load(shifts + group)
        row = tl.load(idx_mapping + index).to(tl.int64)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        end = tl.load(starts + index + 1)
        for first in range(tl.load(starts + index), end, 512):
            token = first + tl.arange(0, 512)
            position = tl.load(positions + token, mask=token < end, other=0)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            column = position >> shift if shift >= 0 else position // size
            offset = position & ((1 << shift) - 1) if shift >= 0 else position % size
            place = source + row * tl.load(descriptor + WIDTH) + column
            block_id = tl.load(place, mask=inside & (token < end), other=0).to(tl.int64)
            tl.store(slots + token, tl.where(inside, block_id * size + offset, PAD), token < end)
    else:
        _pad_slots(descriptors, starts, None, None, None, num_reqs, group, PAD, 1024)


class Variant(DeviceBlockTables):
    """As baseline, with shifts in the plain slots."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        shifts = [-1 if size % 16 else size.bit_length() - 1 for size in layout.block_sizes]
        self._shifts = torch.tensor(shifts, device=self.device)

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        batch = (idx_mapping, query_start_loc, positions, num_reqs)
        grid = (self.layout.num_groups, num_reqs + 1, 1)
        arguments = (self.descriptors, self._shifts, *batch)
        self.launch(slots_kernel, grid, arguments, (PAD_SLOT_ID,), (idx_mapping,))
