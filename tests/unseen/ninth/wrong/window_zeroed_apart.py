"""As fused_apply, but a gather with a window zeroes what is out of reach, and copies the rest.

Columns before the window are neither masked nor compared in the loop that copies; long requests
with a short window have few columns to copy.

Wrong: the loop that zeroes ends with the window's first column, even where the row owns fewer
blocks: columns from `num_blocks` on have to keep their contents.
Shows: a gather with `num_computed_tokens` that are more than the row's blocks hold (as before the
blocks of the next tokens are appended), over an input row that a longer request had before.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code import (
    DESCRIPTOR_FIELDS,
    INPUTS,
    NUM_BLOCKS,
    SOURCE,
    STEP_SIZES,
    WIDTH,
    _first_column,
    _target,
)
from bt_kernels.device_code.parts import _row
from bt_kernels.variants.fused_apply import Variant as Base

BLOCK = 256


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def window_gather_kernel(
    descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, BLOCK: tl.constexpr
):
    """Source rows from the window on, and zeros before it; grid `(G, rows)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    target = _target(descriptor, out_ptrs, group) + batch_index * width
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    length = tl.load(num_blocks + row, mask=row >= 0, other=0)
    first_column = tl.minimum(_first_column(descriptor, num_computed_tokens, row), width)
    # A dummy request, and a row behind the batch, has nothing to copy.
    zeroed = tl.where(row < 0, width, first_column).to(tl.int32)
    for first in range(0, zeroed, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        tl.store(target + columns, tl.zeros([BLOCK], dtype=tl.int32), mask=columns < zeroed)
    for first in range(zeroed, length, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        mask = columns < length
        block_ids = tl.load(source + row * width + columns, mask=mask, other=0)
        tl.store(target + columns, block_ids, mask=mask)


class Variant(Base):
    """Own kernel for gathers with a window."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        self.launch(
            window_gather_kernel,
            (self.layout.num_groups, num_rows, 1),
            (self.descriptors, idx_mapping, idx_mapping.shape[0], num_computed_tokens, out_ptrs),
            (BLOCK,),
            (idx_mapping, num_computed_tokens, out_ptrs),
        )
