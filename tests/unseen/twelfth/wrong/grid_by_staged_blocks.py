"""The grid of a gather in chunks is as long as the longest row is once what is staged is applied.

Shows when a long row is overwritten by a shorter one, and a gather comes before the apply: it still
has to copy all columns as of the last apply, and leaves out those past the longest row to come.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, INPUTS, NUM_BLOCKS, SOURCE, STEP_SIZES, WIDTH
from bt_kernels.device_code.parts import _row, _target
from bt_kernels.variants.fused_apply import Variant as Base

CHUNK = 64


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def gather_chunks_kernel(descriptors, idx_mapping, num_reqs, CHUNK: tl.constexpr):
    """A chunk of a row; rows without a request are zeroed by turns; grid `(G, rows, chunks)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(2) * CHUNK
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    target = _target(descriptor, None, group) + batch_index * width
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    if row >= 0:
        num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
        columns = begin + tl.arange(0, CHUNK)
        live = columns < tl.load(num_blocks + row)
        block_ids = tl.load(source + row * width + columns, mask=live, other=0)
        tl.store(target + columns, block_ids, mask=live)
    else:
        for first in range(begin, width, tl.num_programs(2) * CHUNK):
            columns = first + tl.arange(0, CHUNK)
            zeros = tl.zeros([CHUNK], dtype=tl.int32)
            tl.store(target + columns, zeros, mask=columns < width)


class Variant(Base):
    """As many programs for a row as the longest one needs."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is not None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        chunks = max(1, triton.cdiv(int(self.num_blocks.max()), CHUNK))
        self.launch(
            gather_chunks_kernel,
            (self.layout.num_groups, num_rows, chunks),
            (self.descriptors, idx_mapping, idx_mapping.shape[0]),
            (CHUNK,),
            (idx_mapping,),
        )
