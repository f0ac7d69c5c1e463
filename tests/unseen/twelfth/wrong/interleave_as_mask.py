"""With context parallelism, the place within an interleave is masked as if it were a power of two.

Shows with `cp_size` above 1 and a `cp_interleave` such as 3 or 6: slots of a sharded group are
wrong wherever the position modulo the interleave is not its lowest bits.
"""

import triton
import triton.language as tl

from bt_kernels import device_code as code
from bt_kernels.device_code.parts import _pad_slots, _row, _slots
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base

FIELDS, SOURCE, WIDTH, SIZE = code.DESCRIPTOR_FIELDS, code.SOURCE, code.WIDTH, code.BLOCK_SIZE
CAPACITY, RANKS, RANK, SHARE = code.CAPACITY, code.CP_SIZE, code.CP_RANK, code.CP_INTERLEAVE


@triton.jit(do_not_specialize=code.STEP_SIZES, do_not_specialize_on_alignment=code.INPUTS)
def slots_sharded_kernel(
    groups, idx_mapping, query_start_loc, positions, num_reqs, out, out_stride, out_size,
    PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    group, index = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    if index < num_reqs:
        descriptor = groups + group * FIELDS
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        width, size = tl.load(descriptor + WIDTH), tl.load(descriptor + SIZE)
        ranks, share = tl.load(descriptor + RANKS), tl.load(descriptor + SHARE)
        row = _row(descriptor, idx_mapping, num_reqs, index)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        slots = _slots(descriptor, out, out_stride, group)
        begin, end = tl.load(query_start_loc + index), tl.load(query_start_loc + index + 1)
        for first in range(begin, end, BLOCK):
            token = first + tl.arange(0, BLOCK)
            position = tl.load(positions + token, mask=token < end, other=0)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            inside &= position // share % ranks == tl.load(descriptor + RANK)
            local = position // (share * ranks) * share + (position & (share - 1))
            place = source + row * width + local // size
            block_id = tl.load(place, mask=(token < end) & inside, other=0).to(tl.int64)
            slot = tl.where(inside, block_id * size + local % size, PAD)
            tl.store(slots + token, slot, mask=token < end)
    else:
        _pad_slots(groups, query_start_loc, out, out_stride, out_size, num_reqs, group, PAD, BLOCK)


class Variant(Base):
    """Has a kernel of its own where ranks share the tokens; grid `(G, R + 1)`."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if not self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        its = (None, None, None) if out is None else (out, out.stride(0), out.shape[1])
        num_reqs = idx_mapping.shape[0]
        arguments = (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs, *its)
        grid, constants = (self.layout.num_groups, num_reqs + 1, 1), (PAD_SLOT_ID, 256)
        self.launch(slots_sharded_kernel, grid, arguments, constants, (idx_mapping, out))
