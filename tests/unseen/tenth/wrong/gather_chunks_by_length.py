"""As fused_apply, but gather has a program for each 64 columns, up to the longest row there is.

Long rows are copied by several programs side by side. How many chunks there are follows from the
most blocks that any row has, which the host knows, so that short batches launch few programs. Rows
to be zeroed are divided among the same programs.

Wrong: the host's numbers count what is staged already, but a gather has to copy as many columns as
    at the last apply. If the longest row was overwritten with fewer blocks, and that is not yet
    applied, its last chunks have no program.
Shows: a row of more than 64 blocks, apply, overwrite it with one block, gather before the apply.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    DESCRIPTOR_FIELDS,
    NUM_BLOCKS,
    NUM_ROWS,
    REACH,
    SOURCE,
    TARGET,
    WIDTH,
)
from bt_kernels.variants.fused_apply import Variant as Base

CHUNK = 64


@triton.jit(do_not_specialize=["num_reqs"])
def gather_chunks_kernel(
    descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, CHUNK: tl.constexpr
):
    """Source rows into batch order, further rows zeroed; grid `(G, rows, chunks)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(2) * CHUNK
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    if out_ptrs is None:
        target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32))
    else:
        target = tl.load(out_ptrs + group).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    row = tl.load(idx_mapping + batch_index, mask=batch_index < num_reqs, other=-1).to(tl.int64)
    row = tl.where(row < tl.load(descriptor + NUM_ROWS), row, -1)
    if row >= 0:
        num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
        columns = begin + tl.arange(0, CHUNK)
        live = columns < tl.load(num_blocks + row)
        shown = live
        if num_computed_tokens is not None:
            reach = tl.load(descriptor + REACH)
            if reach > 0:
                computed = tl.load(num_computed_tokens + row).to(tl.int64)
                first = tl.maximum(computed - reach, 0) // tl.load(descriptor + BLOCK_SIZE)
                shown = live & (columns >= first)
        block_ids = tl.load(source + row * width + columns, mask=shown, other=0)
        tl.store(target + batch_index * width + columns, block_ids, mask=live)
    else:
        zeros = tl.zeros([CHUNK], dtype=tl.int32)
        for first in range(begin, width, tl.num_programs(2) * CHUNK):
            columns = first + tl.arange(0, CHUNK)
            tl.store(target + batch_index * width + columns, zeros, mask=columns < width)


class Variant(Base):
    """Gathers chunks of rows."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        longest = int(self.num_blocks.max())
        inputs = tuple(t for t in (idx_mapping, num_computed_tokens, out_ptrs) if t is not None)
        self.launch(
            gather_chunks_kernel,
            (self.layout.num_groups, num_rows, max(1, triton.cdiv(longest, CHUNK))),
            (self.descriptors, idx_mapping, idx_mapping.shape[0], num_computed_tokens, out_ptrs),
            (CHUNK,),
            inputs,
        )
