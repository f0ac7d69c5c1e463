"""A row that is twice in a mapping is gathered once.

The gather has a program for each request row, which looks up the one batch index of it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from bt_kernels.device_code.parts import _gather_row
from bt_kernels.variants.fused_apply import Variant as FusedApply


@triton.jit
def gather_kernel(descriptors, idx_mapping, num_reqs, places, size, BLOCK: tl.constexpr):
    group = tl.program_id(0).to(tl.int64)
    program = tl.program_id(1).to(tl.int64)
    if program < size:
        index = tl.load(places + program)
        if index >= 0:
            _gather_row(descriptors, idx_mapping, num_reqs, None, None, group, index, BLOCK)
    else:
        index = program - size
        if tl.load(idx_mapping + index, mask=index < num_reqs, other=-1) < 0:
            _gather_row(descriptors, idx_mapping, num_reqs, None, None, group, index, BLOCK)


class Variant(FusedApply):
    """Replaces the launch of the plain gather."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is not None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        size, num_reqs = self.layout.max_num_reqs, idx_mapping.shape[0]
        places = torch.full((size + 1,), -1, dtype=torch.int64, device=self.device)
        # Dummy requests go to the last place, which no program reads.
        places[idx_mapping.long()] = torch.arange(num_reqs, device=self.device)
        self.launch(
            gather_kernel,
            (self.layout.num_groups, size + num_rows, 1),
            (self.descriptors, idx_mapping, num_reqs, places, size),
            (1024,),
            (idx_mapping,),
        )
