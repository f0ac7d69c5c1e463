"""As baseline, but gathers two columns at a time where all widths are even (G + 2 launches a step).

Wrong: an odd number of blocks is rounded up to whole pairs, so the column behind the last block is
copied, too, and does not keep its contents in the input table.

Shows: even widths, and a row with an odd number of blocks whose source row, or whose input row, has
an old id behind them.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, TARGET, WIDTH
from bt_kernels.device_code.parts import _row
from bt_kernels.variants.baseline import Variant as Base

PAIRS = 512


@triton.jit(do_not_specialize=["num_reqs"])
def gather_pairs_kernel(descriptors, idx_mapping, num_reqs, PAIRS: tl.constexpr):
    """Gathers or zeroes one row of an even width, as int64; grid `(G, rows)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int64))
    target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int64))
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    half = tl.load(descriptor + WIDTH) // 2
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    length = tl.load(num_blocks + row, mask=row >= 0, other=0)
    num_pairs = tl.where(row < 0, half.to(tl.int32), (length + 1) // 2)
    num_read = tl.where(row < 0, 0, num_pairs)
    for first in range(0, num_pairs, PAIRS):
        pairs = first + tl.arange(0, PAIRS)
        ids = tl.load(source + row * half + pairs, mask=pairs < num_read, other=0)
        tl.store(target + batch_index * half + pairs, ids, mask=pairs < num_pairs)


class Variant(Base):
    """Replaces the launch of the plain gather."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        plain = num_computed_tokens is None and out_ptrs is None
        if not plain or not self._rows_are_paired():
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        self.launch(
            gather_pairs_kernel,
            (self.layout.num_groups, num_rows, 1),
            (self.descriptors, idx_mapping, idx_mapping.shape[0]),
            (PAIRS,),
            (idx_mapping,),
        )

    def _rows_are_paired(self):
        """Tell whether all rows begin at multiples of 8 bytes."""
        tables = (*self.block_tables, *self.input_block_tables)
        return all(table.shape[1] % 2 == 0 and table.data_ptr() % 8 == 0 for table in tables)
