"""Slots by token tiles that bisect the whole query_start_loc instead of its first R + 1 elements.

Shows when query_start_loc is longer than R + 1 and what follows is smaller than T (zeros, or what
an earlier batch left): tokens are taken for those of requests past the batch and get PAD.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    INPUTS,
    MAX_NUM_TOKENS,
    SOURCE,
    WIDTH,
)
from bt_kernels.device_code.parts import _local_position, _row, _slots
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.baseline import Variant as Base

TILE = 128


@triton.jit(
    do_not_specialize=["num_reqs", "num_starts", "first_step", "out_stride", "out_size"],
    do_not_specialize_on_alignment=INPUTS,
)
def slots_bisect_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    num_starts,
    first_step,
    out,
    out_stride,
    out_size,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
):
    """A tile of slots per program, whosever tokens they are; grid `(G, tiles)`."""
    group = tl.program_id(0).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    token = tl.program_id(1) * TILE + tl.arange(0, TILE)
    slots = _slots(descriptor, out, out_stride, group)
    end = tl.load(descriptor + MAX_NUM_TOKENS) if out is None else out_size
    num_tokens = tl.load(query_start_loc + num_reqs)
    real = token < num_tokens
    # The last request that begins at or before the token.
    found = tl.zeros_like(token)
    step = first_step
    while step > 0:
        further = found + step
        start = tl.load(query_start_loc + further, mask=further < num_starts, other=2147483647)
        found = tl.where(start <= token, further, found)
        step = step // 2
    row = _row(descriptor, idx_mapping, num_reqs, found.to(tl.int64))
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    position = tl.load(positions + token, mask=real, other=0)
    inside = real & (row >= 0) & (position >= 0) & (position < tl.load(descriptor + CAPACITY))
    position = tl.where(inside, position, 0)
    if SHARDED:
        position, mine = _local_position(descriptor, position, block_size)
        inside &= mine
    block_id = tl.load(source + row * width + position // block_size, mask=inside, other=0)
    slot = block_id.to(tl.int64) * block_size + position % block_size
    tl.store(slots + token, tl.where(inside, slot, PAD), mask=token < end)


class Variant(Base):
    """Slots in tiles of tokens: a long prefill has as many programs as many decodes."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        num_slots = self.layout.max_num_batched_tokens if out is None else out.shape[1]
        num_starts = query_start_loc.shape[0]
        first_step = 1 << (num_starts - 1).bit_length() >> 1
        stride, size = (None, None) if out is None else (out.stride(0), out.shape[1])
        self.launch(
            slots_bisect_kernel,
            (self.layout.num_groups, max(1, triton.cdiv(num_slots, TILE)), 1),
            (
                *(self.descriptors, idx_mapping, query_start_loc, positions),
                *(idx_mapping.shape[0], num_starts, first_step, out, stride, size),
            ),
            (self.sharded, PAD_SLOT_ID, TILE),
            (idx_mapping, out),
        )
