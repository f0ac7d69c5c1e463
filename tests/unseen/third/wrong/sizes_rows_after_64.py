"""A gather of 65 to 127 rows stops after 64.

Its persistent programs make `rows // programs` turns, rounded down.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.parts import _gather_row
from bt_kernels.variants.fused_apply import Variant as FusedApply

PROGRAMS = 64


@triton.jit
def gather_kernel(descriptors, idx_mapping, num_reqs, turns, BLOCK: tl.constexpr):
    group = tl.program_id(0).to(tl.int64)
    for turn in range(0, turns):
        index = (turn * tl.num_programs(1) + tl.program_id(1)).to(tl.int64)
        _gather_row(descriptors, idx_mapping, num_reqs, None, None, group, index, BLOCK)


class Variant(FusedApply):
    """Replaces the launch of the plain gather."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is not None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        programs = min(num_rows, PROGRAMS)
        self.launch(
            gather_kernel,
            (self.layout.num_groups, programs, 1),
            (self.descriptors, idx_mapping, idx_mapping.shape[0], num_rows // programs),
            (1024,),
            (idx_mapping,),
        )
