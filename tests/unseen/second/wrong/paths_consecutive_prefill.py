"""Reads only the first position of a request with more than 16 tokens in the step.

It shows when such a request has positions that are not consecutive, as with a token tree or padding
below 0: the others are counted up from the first.
"""

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
def slots_kernel(descriptors, idx_mapping, starts, positions, num_reqs, PAD: tl.constexpr):
    """Slots with fewer reads in a prefill; grid `(G, R + 1)`."""
    group = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if index < num_reqs:
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
        size = tl.load(descriptor + BLOCK_SIZE)
        row = tl.load(idx_mapping + index).to(tl.int64)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        start = tl.load(starts + index)
        end = tl.load(starts + index + 1)
        prefill = end - start > 16
        for first in range(start, end, 512):
            token = first + tl.arange(0, 512)
            position = tl.load(positions + tl.where(prefill, start, token), mask=token < end)
            position += tl.where(prefill, token - start, 0)
            inside = (position >= 0) & (position < capacity) & (token < end)
            position = tl.where(inside, position, 0)
            place = source + row * tl.load(descriptor + WIDTH) + position // size
            block_id = tl.load(place, mask=inside, other=0).to(tl.int64)
            slot = tl.where(inside, block_id * size + position % size, PAD)
            tl.store(slots + token, slot, mask=token < end)
    else:
        _pad_slots(descriptors, starts, None, None, None, num_reqs, group, PAD, 1024)


class Variant(DeviceBlockTables):
    """As baseline, with other plain slots."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        arguments = (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs)
        grid = (self.layout.num_groups, num_reqs + 1, 1)
        self.launch(slots_kernel, grid, arguments, (PAD_SLOT_ID,), (idx_mapping,))
