"""As baseline, but a gather with a sliding window reads nothing before the window (G + 2 launches).

One loop zeroes the columns before the window, another copies those in it, without a mask for it.

Wrong: the columns before the window end at the row's width, not at its last block; where the
window begins behind the last block, columns of a live row from `num_blocks` on are zeroed.

Shows: `num_computed_tokens` that put the window's first column past the blocks that the row owns
as of the last apply, and input rows that are not zero there.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, TARGET, WIDTH
from bt_kernels.device_code.parts import _first_column, _row
from bt_kernels.variants.baseline import Variant as Base

COLUMNS = 256


@triton.jit(do_not_specialize=["num_reqs"])
def gather_window_kernel(
    descriptors, idx_mapping, num_reqs, num_computed_tokens, COLUMNS: tl.constexpr
):
    """Gathers or zeroes one row; grid `(G, rows)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    width = tl.load(descriptor + WIDTH)
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    length = tl.load(num_blocks + row, mask=row >= 0, other=0)
    first_column = _first_column(descriptor, num_computed_tokens, row)
    num_zeros = tl.where(row < 0, width, tl.minimum(first_column, width)).to(tl.int32)
    target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32)) + batch_index * width
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32)) + row * width
    for first in range(0, num_zeros, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        tl.store(target + columns, tl.zeros([COLUMNS], tl.int32), mask=columns < num_zeros)
    for first in range(num_zeros, length, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)
        block_ids = tl.load(source + columns, mask=columns < length, other=0)
        tl.store(target + columns, block_ids, mask=columns < length)


class Variant(Base):
    """Replaces the launch of a gather with a window into the input tables."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        self.launch(
            gather_window_kernel,
            (self.layout.num_groups, num_rows, 1),
            (self.descriptors, idx_mapping, idx_mapping.shape[0], num_computed_tokens),
            (COLUMNS,),
            (idx_mapping, num_computed_tokens),
        )
