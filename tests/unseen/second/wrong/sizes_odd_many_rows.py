"""Leaves out the last row of a gather of more than 64 rows if their number is odd.

It shows with 65, 67, … rows to gather or to zero: above 64 rows a program takes two, and the number
of programs is rounded down.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import INPUTS, STEP_SIZES, _gather_row
from bt_kernels.device_tables import DeviceBlockTables

MANY_ROWS = 64


@triton.jit(do_not_specialize=STEP_SIZES, do_not_specialize_on_alignment=INPUTS)
def gather_pairs_kernel(descriptors, idx_mapping, num_reqs, BLOCK: tl.constexpr):
    """Two rows of a group in each program; grid `(G, pairs)`."""
    group = tl.program_id(0).to(tl.int64)
    for which in range(2):
        batch_index = tl.program_id(1).to(tl.int64) * 2 + which
        _gather_row(descriptors, idx_mapping, num_reqs, None, None, group, batch_index, BLOCK)


class Variant(DeviceBlockTables):
    """As baseline, with half as many programs for a large batch."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        plain = num_computed_tokens is None and out_ptrs is None
        if num_rows <= MANY_ROWS or not plain:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        self.launch(
            gather_pairs_kernel,
            (self.layout.num_groups, num_rows // 2, 1),
            (self.descriptors, idx_mapping, idx_mapping.shape[0]),
            (1024,),
            (idx_mapping,),
        )
