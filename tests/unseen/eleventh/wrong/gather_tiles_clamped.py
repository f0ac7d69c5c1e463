"""The tiled gather clamps rows into the table instead of taking those past it for dummies.

Shows when idx_mapping has a row of max_num_reqs or more: the input row gets the blocks of the last
request row instead of zeros.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    DESCRIPTOR_FIELDS,
    INPUTS,
    NUM_BLOCKS,
    NUM_ROWS,
    REACH,
    SOURCE,
    STEP_SIZES,
    WIDTH,
)
from bt_kernels.device_code.parts import _target
from bt_kernels.variants.baseline import Variant as Base

TILE = 4
COLUMNS = 128


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def gather_tiles_kernel(
    descriptors,
    idx_mapping,
    num_reqs,
    num_rows,
    num_computed_tokens,
    out_ptrs,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A tile of rows per program, zeroing those from `num_reqs` on; grid `(G, tiles)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1) * TILE + tl.arange(0, TILE)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    row = tl.load(idx_mapping + batch_index, mask=batch_index < num_reqs, other=-1).to(tl.int64)
    # Never read out of bounds, whatever the mapping says.
    row = tl.minimum(row, tl.load(descriptor + NUM_ROWS) - 1)
    live = row >= 0
    length = tl.load(num_blocks + row, mask=live, other=0)
    written = tl.where(live, length, width.to(tl.int32))
    written = tl.where(batch_index < num_rows, written, 0)
    first_column = tl.zeros_like(row)
    if num_computed_tokens is not None:
        reach = tl.load(descriptor + REACH)
        if reach > 0:
            computed = tl.load(num_computed_tokens + row, mask=live, other=0)
            first_column = tl.maximum(computed - reach, 0) // tl.load(descriptor + BLOCK_SIZE)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32)) + row * width
    target = _target(descriptor, out_ptrs, group) + batch_index.to(tl.int64) * width
    for first in range(0, tl.max(written, axis=0), COLUMNS):
        columns = (first + tl.arange(0, COLUMNS))[None, :]
        shown = (columns < length[:, None]) & (columns >= first_column[:, None])
        block_ids = tl.load(source[:, None] + columns, mask=shown, other=0)
        tl.store(target[:, None] + columns, block_ids, mask=columns < written[:, None])


class Variant(Base):
    """Gathers four rows a program."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        self.launch(
            gather_tiles_kernel,
            (self.layout.num_groups, triton.cdiv(num_rows, TILE), 1),
            (
                *(self.descriptors, idx_mapping, idx_mapping.shape[0], num_rows),
                *(num_computed_tokens, out_ptrs),
            ),
            (TILE, COLUMNS),
            (idx_mapping, num_computed_tokens, out_ptrs),
        )
