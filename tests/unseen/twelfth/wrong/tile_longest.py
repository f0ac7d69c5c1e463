"""A dummy request is zeroed only as far as the longest row of its tile is copied.

Shows when a dummy request shares a tile of four with live requests, none of them past the batch,
and its input row still has ids behind the longest of these, rounded up to 32 columns: they stay. A
tile of dummies alone is not zeroed at all.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, NUM_ROWS, SOURCE, TARGET, WIDTH
from bt_kernels.variants.baseline import Variant as Base

TILE, BLOCK = 4, 32


@triton.jit(do_not_specialize=["num_reqs", "num_rows"])
def gather_tiles_kernel(
    descriptors, idx_mapping, num_reqs, num_rows, TILE: tl.constexpr, BLOCK: tl.constexpr
):
    """Rows into batch order, `TILE` of them in a program; grid `(G, tiles)`."""
    descriptor = descriptors + tl.program_id(0).to(tl.int64) * DESCRIPTOR_FIELDS
    first_index = tl.program_id(1) * TILE
    index = first_index + tl.arange(0, TILE)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    row = tl.load(idx_mapping + index, mask=index < num_reqs, other=-1).to(tl.int64)
    live = (row >= 0) & (row < tl.load(descriptor + NUM_ROWS))
    length = tl.load(num_blocks + row, mask=live, other=0)
    written = tl.where(live, length, width.to(tl.int32))
    written = tl.where(index < num_rows, written, 0)
    # Only a tile that reaches past the batch has to go on to the end of the table.
    end = tl.where(first_index + TILE <= num_reqs, tl.max(length, axis=0), width.to(tl.int32))
    for first in range(0, end, BLOCK):
        columns = first + tl.arange(0, BLOCK)[None, :]
        places = (row * width)[:, None] + columns
        ids = tl.load(source + places, mask=columns < length[:, None], other=0)
        places = (index.to(tl.int64) * width)[:, None] + columns
        tl.store(target + places, ids, mask=columns < written[:, None])


class Variant(Base):
    """Gathers the plain path in tiles."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is not None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        grid = (self.layout.num_groups, -(-num_rows // TILE), 1)
        arguments = (self.descriptors, idx_mapping, idx_mapping.shape[0], num_rows)
        self.launch(gather_tiles_kernel, grid, arguments, (TILE, BLOCK), (idx_mapping,))
