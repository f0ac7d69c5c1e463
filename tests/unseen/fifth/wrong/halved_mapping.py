"""An int64 mapping is viewed as halves, which torch refuses for one element with another stride.

Shows: an int64 `idx_mapping` of a single request, cut from a wider tensor (`batch[:1, 0]`), which is
contiguous all the same: gather raises a RuntimeError.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bt_kernels.device_code import (
    DESCRIPTOR_FIELDS,
    NUM_BLOCKS,
    NUM_ROWS,
    SOURCE,
    TARGET,
    WIDTH,
)
from bt_kernels.variants.baseline import Variant as Base

BLOCK = 256


@triton.jit(do_not_specialize=["step", "num_reqs"])
def gather_halves_kernel(descriptors, halves, step, num_reqs, BLOCK: tl.constexpr):
    """Gathers a row, one binary for both kinds of mappings; grid `(G, rows)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    live = batch_index < num_reqs
    row = tl.load(halves + batch_index * step, mask=live, other=-1)
    upper = tl.load(halves + batch_index * step + 1, mask=live & (step > 1), other=0)
    row = tl.where((step > 1) & live & (upper != (row >> 31)), -1, row).to(tl.int64)
    row = tl.where(row < tl.load(descriptor + NUM_ROWS), row, -1)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    length = tl.load(num_blocks + row, mask=row >= 0, other=0)
    written = tl.where(row < 0, width.to(tl.int32), length)
    for first in range(0, written, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        ids = tl.load(source + row * width + columns, mask=columns < length, other=0)
        tl.store(target + batch_index.to(tl.int64) * width + columns, ids, mask=columns < written)


class Variant(Base):
    """Half as many binaries of the gather."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs) -> None:
        if num_computed_tokens is not None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        halves, step = idx_mapping, 1
        if idx_mapping.dtype is torch.int64:
            halves, step = idx_mapping.view(torch.int32), 2
        self.launch(
            gather_halves_kernel,
            (self.layout.num_groups, num_rows, 1),
            (self.descriptors, halves, step, idx_mapping.shape[0]),
            (BLOCK,),
            (halves,),
        )
