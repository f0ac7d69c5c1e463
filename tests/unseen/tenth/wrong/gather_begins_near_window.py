"""As baseline, but a gather with a window begins one block shape before the window.

Blocks out of reach of a long sequence are most of its row. They were zeroed by the gathers while
the window moved on, so only those near the window are zeroed again.

Wrong: an input row is of a batch index, not of a request: another request may have been gathered
into it before, or the same one without a window.
Shows: a long row is gathered without `num_computed_tokens`, then with them, far from the start.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, WIDTH
from bt_kernels.device_code.parts import _first_column, _row, _target
from bt_kernels.variants.baseline import Variant as Base

BLOCK = 64


@triton.jit(do_not_specialize=["num_reqs"])
def gather_window_kernel(
    descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, BLOCK: tl.constexpr
):
    """Grid `(G, rows)`."""
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
    first_column = tl.minimum(_first_column(descriptor, num_computed_tokens, row), length)
    begin = tl.maximum(first_column // BLOCK - 1, 0).to(tl.int32) * BLOCK
    for first in range(begin, written, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        live = (columns < length) & (columns >= first_column)
        ids = tl.load(source + row * width + columns, mask=live, other=0)
        tl.store(target + columns, ids, mask=columns < written)


class Variant(Base):
    """Another kernel for gathers with a window into the input tables."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        self.launch(
            gather_window_kernel,
            (self.layout.num_groups, num_rows, 1),
            (self.descriptors, idx_mapping, idx_mapping.shape[0], num_computed_tokens, None),
            (BLOCK,),
            (idx_mapping, num_computed_tokens),
        )
