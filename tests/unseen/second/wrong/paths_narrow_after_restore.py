"""Computes slots in int32 as long as no large id was staged, even if a large one was restored.

It shows when a snapshot of other tables with large block ids is restored: id times block size wraps
at 2^31, because only staged ids count.
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
def narrow_slots_kernel(descriptors, idx_mapping, starts, positions, num_reqs, PAD: tl.constexpr):
    """Slots below 2^31; grid `(G, R + 1)`."""
    group = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if index < num_reqs:
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
        size = tl.load(descriptor + BLOCK_SIZE).to(tl.int32)
        row = tl.load(idx_mapping + index).to(tl.int64)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        end = tl.load(starts + index + 1)
        for first in range(tl.load(starts + index), end, 512):
            token = first + tl.arange(0, 512)
            position = tl.load(positions + token, mask=token < end, other=0)
            inside = (position >= 0) & (position < capacity) & (token < end)
            position = tl.where(inside, position, 0)
            place = source + row * tl.load(descriptor + WIDTH) + position // size
            slot = tl.load(place, mask=inside, other=0) * size + (position % size).to(tl.int32)
            tl.store(slots + token, tl.where(inside, slot, PAD).to(tl.int64), mask=token < end)
    else:
        _pad_slots(descriptors, starts, None, None, None, num_reqs, group, PAD, 1024)


class Variant(DeviceBlockTables):
    """As baseline, with int32 slots in small caches."""

    _largest = 0

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        super().append_block_ids(req_index, new_block_ids, overwrite)
        self._largest = max(self._largest, *(abs(i) + 1 for ids in new_block_ids for i in ids), 0)

    def append_many(self, req_indices, new_block_ids, overwrite):
        super().append_many(req_indices, new_block_ids, overwrite)
        sizes = (abs(i) + 1 for request in new_block_ids for ids in request for i in ids)
        self._largest = max(self._largest, *sizes, 0)

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        large = self._largest * max(self.layout.block_sizes) >= 2**31
        if large or out is not None or self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        arguments = (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs)
        grid = (self.layout.num_groups, num_reqs + 1, 1)
        self.launch(narrow_slots_kernel, grid, arguments, (PAD_SLOT_ID,), (idx_mapping,))
