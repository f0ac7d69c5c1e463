"""A gather with a window begins at the chunk that the window reaches, and zeroes none before it.

Shows with a sliding window, in a gather of its own, where a window begins 16 columns or more into
the row: columns of the chunks before it have to become 0, and keep what the input row held.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, INPUTS, NUM_BLOCKS, SOURCE, STEP_SIZES, WIDTH
from bt_kernels.device_code.parts import _first_column, _row, _target
from bt_kernels.variants.fused_gather_slots import Variant as Base

CHUNK = 16  # columns, 64 bytes


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def gather_window_kernel(
    descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, CHUNK: tl.constexpr
):
    """One row of one group, without chunks that are out of reach; grid `(G, rows)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    target = _target(descriptor, out_ptrs, group) + batch_index * width
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    length = tl.load(num_blocks + row, mask=row >= 0, other=0)
    written = tl.where(row < 0, width, length)
    first_column = _first_column(descriptor, num_computed_tokens, row)
    for first in range(first_column // CHUNK * CHUNK, written, CHUNK):
        columns = first + tl.arange(0, CHUNK)
        live = (columns < length) & (columns >= first_column)
        block_ids = tl.load(source + row * width + columns, mask=live, other=0)
        tl.store(target + columns, block_ids, mask=columns < written)


class Variant(Base):
    """Reads only what the window reaches."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is None:
            super()._launch_gather(idx_mapping, num_rows, None, out_ptrs)
            return
        self.launch(
            gather_window_kernel,
            (self.layout.num_groups, num_rows, 1),
            (self.descriptors, idx_mapping, idx_mapping.shape[0], num_computed_tokens, out_ptrs),
            (CHUNK,),
            (idx_mapping, num_computed_tokens, out_ptrs),
        )
