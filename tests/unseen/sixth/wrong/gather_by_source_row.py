"""Gathers by source row through an inverse of idx_mapping, which has one batch index per row.

Shows when a row comes twice in idx_mapping: only the last batch index gets it. Any gather into the
input tables without a window.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, TARGET, WIDTH
from bt_kernels.device_code.parts import _row
from bt_kernels.variants.fused_apply import Variant as Base

BLOCK = 256


@triton.jit(do_not_specialize=["num_reqs", "max_num_reqs"])
def scatter_rows_kernel(
    descriptors, inverse, idx_mapping, num_reqs, max_num_reqs, BLOCK: tl.constexpr
):
    """Rows to where their request is, then zeroes; grid `(G, max_num_reqs + rows)`."""
    descriptor = descriptors + tl.program_id(0).to(tl.int64) * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    program = tl.program_id(1).to(tl.int64)
    if program < max_num_reqs:
        batch_index = tl.load(inverse + program).to(tl.int64)
        if batch_index >= 0:
            counts = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
            length = tl.load(counts + program)
            for first in range(0, length, BLOCK):
                columns = first + tl.arange(0, BLOCK)
                ids = tl.load(source + program * width + columns, mask=columns < length)
                tl.store(target + batch_index * width + columns, ids, mask=columns < length)
    else:
        batch_index = program - max_num_reqs
        if _row(descriptor, idx_mapping, num_reqs, batch_index) < 0:
            for first in range(0, width, BLOCK):
                columns = first + tl.arange(0, BLOCK)
                zeros = tl.zeros([BLOCK], dtype=tl.int32)
                tl.store(target + batch_index * width + columns, zeros, mask=columns < width)


class Variant(Base):
    """Source rows are read in their order, which is kinder to the L2 cache."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is not None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        limit, num_reqs = self.layout.max_num_reqs, idx_mapping.shape[0]
        inverse = torch.full((limit + 1,), -1, dtype=torch.int32, device=self.device)
        rows = idx_mapping.long()
        rows = torch.where((rows >= 0) & (rows < limit), rows, limit)
        inverse[rows] = torch.arange(num_reqs, dtype=torch.int32, device=self.device)
        self.launch(
            scatter_rows_kernel,
            (self.layout.num_groups, limit + num_rows, 1),
            (self.descriptors, inverse, idx_mapping, num_reqs, limit),
            (BLOCK,),
            (idx_mapping,),
        )
