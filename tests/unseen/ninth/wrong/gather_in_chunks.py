"""As fused_apply, but a gather program for each chunk of 64 columns.

What it does: long rows are shared by several programs, which end at once where their chunk is past
the row, or altogether before the sliding window, where no block id has to be read.

Wrong: columns before the window are to be zeroed; a chunk that lies before it altogether keeps
what the input row held.

Shows: a gather of a row with more than 64 blocks and a window beyond them, into used input rows.
"""

import triton
import triton.language as tl

from bt_kernels.device_code.fields import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, WIDTH
from bt_kernels.device_code.parts import _first_column, _row, _target
from bt_kernels.variants.fused_apply import Variant as Base

CHUNK = 64


@triton.jit(do_not_specialize=["num_reqs"])
def gather_chunks_kernel(
    descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, CHUNK: tl.constexpr
):
    """A chunk of a row; grid `(G, rows, chunks)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(2) * CHUNK
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    length = tl.load(num_blocks + row, mask=row >= 0, other=0)
    written = tl.where(row < 0, width.to(tl.int32), length)
    first_column = _first_column(descriptor, num_computed_tokens, row)
    needed = (row < 0) | (begin + CHUNK > first_column)
    if (begin < written) & needed:
        columns = begin + tl.arange(0, CHUNK)
        live = (columns < length) & (columns >= first_column)
        block_ids = tl.load(source + row * width + columns, mask=live, other=0)
        target = _target(descriptor, out_ptrs, group) + batch_index * width
        tl.store(target + columns, block_ids, mask=columns < written)


class Variant(Base):
    """Gathers in chunks."""

    launch_paths = ("jit",)

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        chunks = triton.cdiv(max(self.layout.widths), CHUNK)
        self.launch(
            gather_chunks_kernel,
            (self.layout.num_groups, num_rows, chunks),
            (
                self.descriptors,
                idx_mapping,
                idx_mapping.shape[0],
                num_computed_tokens,
                out_ptrs,
            ),
            (CHUNK,),
            (idx_mapping, num_computed_tokens, out_ptrs),
        )
