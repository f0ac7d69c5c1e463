"""The windowed gather starts at the chunk of the first column in reach and zeroes none before it.

Shows when a request's window begins 64 columns or more into its row, and the input row held
anything but zeros there: those columns keep the ids of an earlier step.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, INPUTS, NUM_BLOCKS, SOURCE, STEP_SIZES, WIDTH
from bt_kernels.device_code.parts import _first_column, _row, _target
from bt_kernels.variants.fused_apply import Variant as Base

CHUNK = 64


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def gather_reach_kernel(
    descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, CHUNK: tl.constexpr
):
    """A row of a group per program; reads no block id out of reach. Grid `(G, rows)`."""
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
    # Long contexts: nothing of the chunks before the window is worth a pass of the loop.
    begin = (first_column // CHUNK * CHUNK).to(tl.int32)
    for first in range(begin, written, CHUNK):
        columns = first + tl.arange(0, CHUNK)
        live = (columns < length) & (columns >= first_column)
        block_ids = tl.load(source + row * width + columns, mask=live, other=0)
        tl.store(target + columns, block_ids, mask=columns < written)


class Variant(Base):
    """Gathers with a window cost as much as the window is wide."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        self.launch(
            gather_reach_kernel,
            (self.layout.num_groups, num_rows, 1),
            (self.descriptors, idx_mapping, idx_mapping.shape[0], num_computed_tokens, out_ptrs),
            (CHUNK,),
            (idx_mapping, num_computed_tokens, out_ptrs),
        )
