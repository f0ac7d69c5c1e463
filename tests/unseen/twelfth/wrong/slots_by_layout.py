"""Slots are mapped by chunks of tokens, as many as the layout has, whatever buffer they go to.

Shows with a caller's slots that are longer than `max_num_batched_tokens`, rounded up to 128: what
lies behind the last chunk, tokens or padding, is not written.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import BLOCK_SIZE, CAPACITY, DESCRIPTOR_FIELDS, NUM_ROWS, SOURCE, WIDTH
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base

CHUNK = 128


@triton.jit(do_not_specialize=["num_reqs", "slots_stride", "num_slots"])
def chunks_kernel(
    descriptors,
    mapping,
    starts,
    positions,
    slots,
    num_reqs,
    slots_stride,
    num_slots,
    PAD: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Slots of a chunk of tokens, or their padding; grid `(G, chunks)`."""
    group = tl.program_id(0).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    token = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    request = tl.zeros([CHUNK], tl.int32)  # as many as end before the token
    for index in range(0, num_reqs):
        request += (tl.load(starts + index + 1) <= token).to(tl.int32)
    known = request < num_reqs
    row = tl.load(mapping + request, mask=known, other=-1).to(tl.int64)
    position = tl.load(positions + token, mask=known, other=-1)
    inside = (row >= 0) & (row < tl.load(descriptor + NUM_ROWS))
    inside &= (position >= 0) & (position < tl.load(descriptor + CAPACITY))
    position = tl.where(inside, position, 0)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    place = row * tl.load(descriptor + WIDTH) + position // block_size
    block_id = tl.load(source + place, mask=inside, other=0).to(tl.int64)
    slot = tl.where(inside, block_id * block_size + position % block_size, PAD)
    tl.store(slots + group * slots_stride + token, slot, mask=token < num_slots)


class Variant(Base):
    """A grid that is the same in all steps, and no program that pads alone."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if self.sharded:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        slots = self.slot_mappings if out is None else out
        chunks = triton.cdiv(self.layout.max_num_batched_tokens, CHUNK)
        sizes = (idx_mapping.shape[0], slots.stride(0), slots.shape[1])
        arguments = (self.descriptors, idx_mapping, query_start_loc, positions, slots, *sizes)
        grid = (self.layout.num_groups, chunks, 1)
        self.launch(chunks_kernel, grid, arguments, (PAD_SLOT_ID, CHUNK), (idx_mapping, out))
