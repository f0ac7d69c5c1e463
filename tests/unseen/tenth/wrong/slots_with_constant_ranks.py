"""As baseline, but ranks and interleave are constants of the slots kernel.

With context parallelism, the divisions by the number of ranks and the interleave become shifts or
multiplications, since both are known when the kernel is compiled. Without it nothing changes.

Wrong: a group that is not sharded has one rank, whatever the layout has.
Shows: slots with `cp_size` 2 and `dcp_sharded` false in a group.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import BLOCK_SIZE, CAPACITY, DESCRIPTOR_FIELDS, SOURCE, WIDTH
from bt_kernels.device_code.parts import _pad_slots, _row, _slots
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.baseline import Variant as Base


@triton.jit(do_not_specialize=["num_reqs", "out_stride", "out_size"])
def slots_ranks_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    out,
    out_stride,
    out_size,
    RANKS: tl.constexpr,
    RANK: tl.constexpr,
    INTERLEAVE: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid `(G, R + 1)`, the last program of a group pads."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    if batch_index < num_reqs:
        descriptor = descriptors + group * DESCRIPTOR_FIELDS
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        width = tl.load(descriptor + WIDTH)
        block_size = tl.load(descriptor + BLOCK_SIZE)
        capacity = tl.load(descriptor + CAPACITY)
        slots = _slots(descriptor, out, out_stride, group)
        row = _row(descriptor, idx_mapping, num_reqs, batch_index)
        capacity = tl.where(row < 0, 0, capacity)
        begin = tl.load(query_start_loc + batch_index)
        end = tl.load(query_start_loc + batch_index + 1)
        for first in range(begin, end, BLOCK):
            tokens = first + tl.arange(0, BLOCK)
            mask = tokens < end
            position = tl.load(positions + tokens, mask=mask, other=0)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            inside &= position // INTERLEAVE % RANKS == RANK
            local = position // (INTERLEAVE * RANKS) * INTERLEAVE + position % INTERLEAVE
            column = local // block_size
            ids = tl.load(source + row * width + column, mask=mask & inside, other=0)
            slot = ids.to(tl.int64) * block_size + local % block_size
            tl.store(slots + tokens, tl.where(inside, slot, PAD), mask=mask)
    else:
        _pad_slots(
            descriptors, query_start_loc, out, out_stride, out_size, num_reqs, group, PAD, BLOCK
        )


class Variant(Base):
    """Another kernel for context parallelism."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if not self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        layout, num_reqs = self.layout, idx_mapping.shape[0]
        place = (None, None, None) if out is None else (out, out.stride(0), out.shape[1])
        self.launch(
            slots_ranks_kernel,
            (layout.num_groups, num_reqs + 1, 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, num_reqs, *place),
            (layout.cp_size, layout.cp_rank, layout.cp_interleave, PAD_SLOT_ID, 256),
            (idx_mapping, out),
        )
