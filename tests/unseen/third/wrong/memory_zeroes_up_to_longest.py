"""Rows are zeroed only as far as the longest row that was ever gathered.

What a caller has written behind that stays, in its own `out` or in dummy tables.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.fields import DESCRIPTOR_FIELDS, WIDTH
from bt_kernels.device_code.parts import _gather_row, _target
from bt_kernels.variants.fused_apply import Variant as FusedApply


@triton.jit
def gather_kernel(
    descriptors, idx_mapping, num_reqs, longest, num_computed_tokens, out_ptrs, BLOCK: tl.constexpr
):
    group = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if tl.load(idx_mapping + index, mask=index < num_reqs, other=-1) >= 0:
        _gather_row(
            descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, group, index, BLOCK
        )
    else:
        width = tl.load(descriptor + WIDTH)
        target = _target(descriptor, out_ptrs, group) + index * width
        length = tl.minimum(width, longest)
        for first in range(0, length, BLOCK):
            columns = first + tl.arange(0, BLOCK)
            tl.store(target + columns, tl.zeros([BLOCK], dtype=tl.int32), mask=columns < length)


class Variant(FusedApply):
    """Replaces the launch of the gather."""

    _most = 0

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        # Nothing is behind the longest row.
        self._most = max(self._most, int(self.num_blocks.max()))
        batch = (self.descriptors, idx_mapping, idx_mapping.shape[0], self._most)
        self.launch(
            gather_kernel,
            (self.layout.num_groups, num_rows, 1),
            (*batch, num_computed_tokens, out_ptrs),
            (1024,),
            (idx_mapping, num_computed_tokens, out_ptrs),
        )
