"""Kernels of its own: a gather of 100 columns a program, and slots of every third token a program, in 128 lanes.

The last 28 lanes of a gather do nothing. Padding is part of the programs of tokens. All sizes are
arguments, and every element has one writer.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    CP_INTERLEAVE,
    CP_RANK,
    CP_SIZE,
    DESCRIPTOR_FIELDS,
    NUM_BLOCKS,
    NUM_ROWS,
    REACH,
    SOURCE,
    TARGET,
    WIDTH,
)
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_apply import Variant as Base


TILE, LANES, PROGRAMS = 100, 128, 3


@triton.jit(do_not_specialize=["num_reqs"])
def gather_tiles_kernel(
    descriptors, idx_mapping, num_reqs, computed, out_ptrs, TILE: tl.constexpr, LANES: tl.constexpr
):
    """Columns of a row, for program `(tile, batch index, group)`."""
    group = tl.program_id(2).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    lane = tl.arange(0, LANES)
    columns = tl.program_id(0) * TILE + lane
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    if out_ptrs is None:
        address = tl.load(descriptor + TARGET)
    else:
        address = tl.load(out_ptrs + group)
    target = address.to(tl.pointer_type(tl.int32))
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    row = tl.load(idx_mapping + batch_index, mask=batch_index < num_reqs, other=-1).to(tl.int64)
    row = tl.where(row < tl.load(descriptor + NUM_ROWS), row, -1)
    length = tl.load(num_blocks + row, mask=row >= 0, other=0)
    shown = columns < length
    if computed is not None:
        reach = tl.load(descriptor + REACH)
        before = tl.load(computed + row, mask=(row >= 0) & (reach > 0), other=0).to(tl.int64)
        first = tl.maximum(before - reach, 0) // tl.load(descriptor + BLOCK_SIZE)
        shown &= columns >= tl.where(reach > 0, first, 0)
    ids = tl.load(source + row * width + columns, mask=shown & (lane < TILE), other=0)
    written = (columns < tl.where(row < 0, width, length)) & (lane < TILE)
    tl.store(target + batch_index * width + columns, ids, mask=written)


@triton.jit(do_not_specialize=["num_reqs", "stride", "num_slots"])
def slots_turns_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    slots,
    stride,
    num_slots,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    LANES: tl.constexpr,
):
    """Every so manyth token and slot of the padding, for program `(first, group, 0)`."""
    group = tl.program_id(1).to(tl.int64)
    apart = tl.num_programs(0)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    size = tl.load(descriptor + BLOCK_SIZE)
    capacity = tl.load(descriptor + CAPACITY)
    num_rows = tl.load(descriptor + NUM_ROWS)
    num_tokens = tl.load(query_start_loc + num_reqs)
    for first in range(tl.program_id(0), num_slots, apart * LANES):
        tokens = first + tl.arange(0, LANES) * apart
        real = tokens < num_tokens
        its = tl.zeros([LANES], dtype=tl.int32)  # the last request that begins at or before a token
        step = 32768
        while step > 0:
            further = its + step
            begin = tl.load(query_start_loc + further, mask=further < num_reqs, other=2147483647)
            its = tl.where(begin <= tokens, further, its)
            step = step // 2
        row = tl.load(idx_mapping + its, mask=real, other=-1).to(tl.int64)
        position = tl.load(positions + tokens, mask=real, other=-1)
        inside = real & (row >= 0) & (row < num_rows) & (position >= 0) & (position < capacity)
        position = tl.where(inside, position, 0)
        column = position // size
        offset = position % size
        if SHARDED:
            ranks = tl.load(descriptor + CP_SIZE)
            interleave = tl.load(descriptor + CP_INTERLEAVE)
            column = position // (size * ranks)
            offset = position % (size * ranks)
            turn = offset // interleave
            inside &= turn % ranks == tl.load(descriptor + CP_RANK)
            offset = turn // ranks * interleave + offset % interleave
        ids = tl.load(source + row * width + column, mask=inside, other=0).to(tl.int64)
        found = tl.where(inside, ids * size + offset, PAD)
        tl.store(slots + group * stride + tokens, found, mask=tokens < num_slots)


class Variant(Base):
    """Other cuts of the same work.

    It has no captured steps: launches have the address of the slots, and replays have to fill those
    of tables that were replaced since.
    """

    capture_step = None

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        tiles = triton.cdiv(max(self.layout.widths), TILE)
        self.launch(
            gather_tiles_kernel,
            (tiles, num_rows, self.layout.num_groups),
            (self.descriptors, idx_mapping, idx_mapping.shape[0], num_computed_tokens, out_ptrs),
            (TILE, LANES),
            (idx_mapping, num_computed_tokens, out_ptrs),
        )

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        slots = self.slot_mappings if out is None else out
        self.launch(
            slots_turns_kernel,
            (PROGRAMS, self.layout.num_groups, 1),
            (
                *(self.descriptors, idx_mapping, query_start_loc, positions, idx_mapping.shape[0]),
                *(slots, slots.stride(0), slots.shape[1]),
            ),
            (self.sharded, PAD_SLOT_ID, LANES),
            (idx_mapping, query_start_loc, positions, slots),
        )
