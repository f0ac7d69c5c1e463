"""Right: slots by a kernel with one program for each tile of 32 tokens, which looks for their
requests.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    MAX_NUM_TOKENS,
    NUM_ROWS,
    SLOTS,
    SOURCE,
    WIDTH,
)
from bt_kernels.fusions import FusedApply
from bt_kernels.layout import PAD_SLOT_ID


@triton.jit(do_not_specialize=["num_reqs"])
def _tile_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
):
    """Slots of a tile of tokens, padding included."""
    descriptor = descriptors + tl.program_id(0).to(tl.int64) * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    width = tl.load(descriptor + WIDTH)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    capacity = tl.load(descriptor + CAPACITY)
    tokens = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    rows = tl.full([TILE], -1, dtype=tl.int64)
    for request in range(0, num_reqs):
        first = tl.load(query_start_loc + request)
        end = tl.load(query_start_loc + request + 1)
        row = tl.load(idx_mapping + request).to(tl.int64)
        rows = tl.where((tokens >= first) & (tokens < end), row, rows)
    exists = (rows >= 0) & (rows < tl.load(descriptor + NUM_ROWS))
    position = tl.load(positions + tokens, mask=exists, other=-1)
    inside = (position >= 0) & (position < capacity)
    position = tl.where(inside, position, 0)
    place = tl.where(inside, rows, 0) * width + position // block_size
    block_id = tl.load(source + place, mask=inside, other=0)
    slot = tl.where(inside, block_id.to(tl.int64) * block_size + position % block_size, PAD)
    tl.store(slots + tokens, slot, mask=tokens < tl.load(descriptor + MAX_NUM_TOKENS))


class Variant(FusedApply):
    """Tokens are cut into tiles, requests are not."""

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        if self.sharded or out is not None:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
            return
        tiles = triton.cdiv(self.layout.max_num_batched_tokens, 32)
        self.launch(
            _tile_kernel,
            (self.layout.num_groups, tiles, 1),
            (self.descriptors, idx_mapping, query_start_loc, positions, idx_mapping.shape[0]),
            (PAD_SLOT_ID, 32),
            (idx_mapping,),
        )
