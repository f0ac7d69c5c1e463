"""As fused_apply, but a gather with a window begins where the window does (3 launches a step).

Wrong: the loop begins at the piece of columns that the window's first column is in. Columns of
pieces before that are not zeroed, but keep what an earlier batch left there.

Shows: num_computed_tokens so far beyond the reach that 128 columns or more are out of it, in an
input row that is not zero there.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, WIDTH
from bt_kernels.device_code.parts import _first_column, _row, _target
from bt_kernels.variants.fused_apply import Variant as Base

BLOCK = 128


@triton.jit(do_not_specialize=["num_reqs"])
def gather_window_kernel(
    descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, BLOCK: tl.constexpr
):
    """Gathers one row, from its window on; grid `(G, rows)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    target = _target(descriptor, out_ptrs, group) + batch_index * width
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    length = tl.load(num_blocks + row, mask=row >= 0, other=0)
    written = tl.where(row < 0, width.to(tl.int32), length)
    first_column = _first_column(descriptor, num_computed_tokens, row)
    # With a long context most of a row is before the window.
    begin = (first_column // BLOCK * BLOCK).to(tl.int32)
    for first in range(begin, written, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        live = (columns < length) & (columns >= first_column)
        block_ids = tl.load(source + row * width + columns, mask=live, other=0)
        tl.store(target + columns, block_ids, mask=columns < written)


class Variant(Base):
    """Replaces the launch of the gather where there is a window."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        self.launch(
            gather_window_kernel,
            (self.layout.num_groups, num_rows, 1),
            (
                *(self.descriptors, idx_mapping, idx_mapping.shape[0]),
                *(num_computed_tokens, out_ptrs),
            ),
            (BLOCK,),
            (idx_mapping, num_computed_tokens, out_ptrs),
        )
