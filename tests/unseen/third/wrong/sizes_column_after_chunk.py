"""A row of 257 blocks is gathered without its last.

More generally one more than a multiple of 256: the loop for long rows ends one column early.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.fields import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, TARGET, WIDTH
from bt_kernels.variants.fused_apply import Variant as FusedApply


@triton.jit
def zero_row(descriptors, group, batch_index, BLOCK: tl.constexpr):
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    width = tl.load(descriptor + WIDTH)
    target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32)) + batch_index * width
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        tl.store(target + column, 0, mask=column < width)


@triton.jit
def gather_kernel(descriptors, idx_mapping, num_reqs, BLOCK: tl.constexpr):
    group = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    row = tl.load(idx_mapping + index, mask=index < num_reqs, other=-1).to(tl.int64)
    if row < 0:
        zero_row(descriptors, group, index, BLOCK)
    else:
        width = tl.load(descriptor + WIDTH)
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32)) + row * width
        target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32)) + index * width
        length = tl.load(tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32)) + row)
        columns = tl.arange(0, BLOCK)
        tl.store(
            target + columns,
            tl.load(source + columns, mask=columns < length),
            mask=columns < length,
        )
        for first in range(BLOCK, length - 1, BLOCK):
            more = first + columns
            tl.store(target + more, tl.load(source + more, mask=more < length), mask=more < length)


class Variant(FusedApply):
    """Replaces the launch of the plain gather."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is not None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        self.launch(
            gather_kernel,
            (self.layout.num_groups, num_rows, 1),
            (self.descriptors, idx_mapping, idx_mapping.shape[0]),
            (256,),
            (idx_mapping,),
        )
