"""As fused_apply, but a gather program takes tiles of four rows (3 launches a step).

Wrong: a tile loops up to the longest of its rows, where a request without blocks counts as 0
columns long although its row is to be zeroed whole. So its row is zeroed only as far as the longest
live row of the tile reaches, in whole pieces of columns.

Shows: -1 in idx_mapping, among short rows of a table with more than 64 columns, in an input row
that is not zero (poisoned, or filled by a longer row before).
"""

import triton
import triton.language as tl

from bt_kernels.device_code import (
    DESCRIPTOR_FIELDS,
    NUM_BLOCKS,
    NUM_ROWS,
    SOURCE,
    TARGET,
    WIDTH,
)
from bt_kernels.variants.fused_apply import Variant as Base

TILE = 4
COLUMNS = 64


@triton.jit(do_not_specialize=["num_reqs", "num_rows"])
def gather_tiles_kernel(
    descriptors, idx_mapping, num_reqs, num_rows, TILE: tl.constexpr, COLUMNS: tl.constexpr
):
    """Gathers or zeroes the rows of a tile; grid `(G, tiles)`."""
    descriptor = descriptors + tl.program_id(0).to(tl.int64) * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32))
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)

    batch_index = tl.program_id(1) * TILE + tl.arange(0, TILE)
    in_batch = batch_index < num_reqs
    row = tl.load(idx_mapping + batch_index, mask=in_batch, other=-1).to(tl.int64)
    row = tl.where(row < tl.load(descriptor + NUM_ROWS), row, -1)
    live = row >= 0
    length = tl.load(num_blocks + row, mask=live, other=0)
    written = tl.where(live, length, width.to(tl.int32))
    written = tl.where(batch_index < num_rows, written, 0)

    source_row = source + row * width
    target_row = target + batch_index.to(tl.int64) * width
    # Rows behind the batch are as long as the table.
    longest = tl.max(tl.where(in_batch, length, written), axis=0)
    for first in range(0, longest, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)[None, :]
        ids = tl.load(source_row[:, None] + columns, mask=columns < length[:, None], other=0)
        tl.store(target_row[:, None] + columns, ids, mask=columns < written[:, None])


class Variant(Base):
    """Replaces the launch of the plain gather."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is not None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        self.launch(
            gather_tiles_kernel,
            (self.layout.num_groups, triton.cdiv(num_rows, TILE), 1),
            (self.descriptors, idx_mapping, idx_mapping.shape[0], num_rows),
            (TILE, COLUMNS),
            (idx_mapping,),
        )
