"""Takes the number of ranks for a power of two.

It shows with `cp_size` 3, 5, 6, 7, …: the rank that has a token is found by masking bits, so some
tokens of this rank are PAD and some of others are not.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    CP_INTERLEAVE,
    CP_RANK,
    CP_SIZE,
    DESCRIPTOR_FIELDS,
    SLOTS,
    SOURCE,
    WIDTH,
    _pad_slots,
)
from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import PAD_SLOT_ID


@triton.jit(do_not_specialize=["num_reqs"])
def sharded_slots_kernel(descriptors, idx_mapping, starts, positions, num_reqs, PAD: tl.constexpr):
    """Slots of one of several ranks; grid `(G, R + 1)`."""
    group = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if index < num_reqs:
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
        size = tl.load(descriptor + BLOCK_SIZE)
        ranks = tl.load(descriptor + CP_SIZE)
        interleave = tl.load(descriptor + CP_INTERLEAVE)
        row = tl.load(idx_mapping + index).to(tl.int64)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        end = tl.load(starts + index + 1)
        for first in range(tl.load(starts + index), end, 512):
            token = first + tl.arange(0, 512)
            position = tl.load(positions + token, mask=token < end, other=0)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            offset = position % (size * ranks)
            turn = offset // interleave
            inside &= (turn & (ranks - 1)) == tl.load(descriptor + CP_RANK)
            offset = turn // ranks * interleave + offset % interleave
            place = source + row * tl.load(descriptor + WIDTH) + position // (size * ranks)
            block_id = tl.load(place, mask=inside & (token < end), other=0).to(tl.int64)
            tl.store(slots + token, tl.where(inside, block_id * size + offset, PAD), token < end)
    else:
        _pad_slots(descriptors, starts, None, None, None, num_reqs, group, PAD, 1024)


class Variant(DeviceBlockTables):
    """As baseline, with other slots for context parallelism."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is not None or not self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        num_reqs = idx_mapping.shape[0]
        arguments = (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs)
        grid = (self.layout.num_groups, num_reqs + 1, 1)
        self.launch(sharded_slots_kernel, grid, arguments, (PAD_SLOT_ID,), (idx_mapping,))
