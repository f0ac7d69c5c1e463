"""As fused_apply, but a gather program for each 64 columns, as many as the longest row has.

Long rows are copied by several programs side by side; short ones do not start programs for columns
that no row has. A row that is zeroed is zeroed by its first program.

Wrong: the host's `num_blocks` counts what is staged, but gather is to copy what was applied: rows
that are to be cut by the next apply lose columns now.
Shows: a long row is applied, a short overwrite of it staged, and gathered before the next apply.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, WIDTH
from bt_kernels.device_code.parts import _first_column, _row, _target
from bt_kernels.variants.fused_apply import Variant as Base

CHUNK = 64


@triton.jit(do_not_specialize=["num_reqs"])
def gather_chunks_kernel(
    descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, CHUNK: tl.constexpr
):
    """Grid `(G, rows, chunks)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(2)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    target = _target(descriptor, out_ptrs, group) + batch_index * width
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    if row >= 0:
        num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
        length = tl.load(num_blocks + row)
        first_column = _first_column(descriptor, num_computed_tokens, row)
        columns = chunk * CHUNK + tl.arange(0, CHUNK)
        live = (columns < length) & (columns >= first_column)
        ids = tl.load(source + row * width + columns, mask=live, other=0)
        tl.store(target + columns, ids, mask=columns < length)
    elif chunk == 0:
        for first in range(0, width.to(tl.int32), CHUNK):
            columns = first + tl.arange(0, CHUNK)
            tl.store(target + columns, tl.zeros([CHUNK], tl.int32), mask=columns < width)


class Variant(Base):
    """A grid of three dimensions."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        longest = int(self.num_blocks.max())
        if self.place.is_capturing():
            longest = max(self.layout.widths)
        self.launch(
            gather_chunks_kernel,
            (self.layout.num_groups, num_rows, max(1, triton.cdiv(longest, CHUNK))),
            (self.descriptors, idx_mapping, idx_mapping.shape[0], num_computed_tokens, out_ptrs),
            (CHUNK,),
            (idx_mapping, num_computed_tokens, out_ptrs),
        )
