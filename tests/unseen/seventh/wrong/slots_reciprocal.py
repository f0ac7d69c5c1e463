"""As fused_gather_slots, but without a division of int64: by reciprocals (G + 1 launches a step).

Wrong: a half is added to the position, so that the rounded product cannot end up just below a whole
number. From 2**23 on float32 has no halves, so the last position of a block is rounded up into the
next block, with an offset of -1.

Shows: a combined call, or a step, with the last position of a block beyond 2**23, in a row with
room for it (as blocks of 1,024 tokens have in 8,200 columns).
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
    _gather,
    _pad_slots,
)
from bt_kernels.device_code.parts import _row
from bt_kernels.device_tables import arguments
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_gather_slots import Variant as Base

BLOCK = 1024


@triton.jit
def _slots_by_reciprocal(
    descriptors,
    reciprocals,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    group,
    batch_index,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    width = tl.load(descriptor + WIDTH)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    reciprocal = tl.load(reciprocals + group)
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
    begin = tl.load(query_start_loc + batch_index)
    end = tl.load(query_start_loc + batch_index + 1)
    for first in range(begin, end, BLOCK):
        tokens = first + tl.arange(0, BLOCK)
        mask = tokens < end
        position = tl.load(positions + tokens, mask=mask, other=-1)
        inside = (position >= 0) & (position < capacity)
        position = tl.where(inside, position, 0)
        # The half keeps whole multiples of a block from being rounded down.
        column = ((position.to(tl.float32) + 0.5) * reciprocal).to(tl.int32)
        column = tl.minimum(column, width.to(tl.int32) - 1)
        offset = position - column.to(tl.int64) * block_size
        block_id = tl.load(source + row * width + column, mask=inside, other=0)
        slot = block_id.to(tl.int64) * block_size + offset
        tl.store(slots + tokens, tl.where(inside, slot, PAD), mask=mask)


@triton.jit(do_not_specialize=["num_reqs", "num_rows"])
def gather_slots_reciprocal_kernel(
    descriptors,
    reciprocals,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    num_rows,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gather and slots; grid `(G, num_rows + R + 1)`."""
    group = tl.program_id(0).to(tl.int64)
    program = tl.program_id(1).to(tl.int64)
    if program < num_rows:
        _gather(descriptors, idx_mapping, num_reqs, None, None, BLOCK)
    elif program < num_rows + num_reqs:
        _slots_by_reciprocal(
            descriptors,
            reciprocals,
            idx_mapping,
            query_start_loc,
            positions,
            num_reqs,
            group,
            program - num_rows,
            PAD,
            BLOCK,
        )
    else:
        _pad_slots(descriptors, query_start_loc, None, None, None, num_reqs, group, PAD, BLOCK)


class Variant(Base):
    """Replaces the combined launch where there are no options."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._reciprocals = torch.tensor(
            [1 / size for size in layout.block_sizes], dtype=torch.float32, device=self.device
        )

    def gather_and_compute_slot_mappings(
        self,
        idx_mapping,
        query_start_loc,
        positions,
        num_reqs_padded,
        num_tokens_padded,
        **options,
    ):
        if self.sharded or any(value is not None for value in options.values()):
            return super().gather_and_compute_slot_mappings(
                *(idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded),
                **options,
            )
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded)
        slots = self._check_slots(
            num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, None
        )
        num_rows, dirty = self._rows_to_gather(num_reqs, num_reqs_padded, None)
        self.launch(
            gather_slots_reciprocal_kernel,
            (self.layout.num_groups, num_rows + num_reqs + 1, 1),
            (
                *(self.descriptors, self._reciprocals, idx_mapping, query_start_loc, positions),
                *(num_reqs, num_rows),
            ),
            (PAD_SLOT_ID, BLOCK),
            (idx_mapping, query_start_loc, positions),
        )
        self.num_dirty_rows = dirty
        return self._views_of_tables(num_reqs_padded), slots
