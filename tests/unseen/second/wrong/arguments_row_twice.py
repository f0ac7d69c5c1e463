"""Gathers a request row into only one of the batch indices that name it.

It shows when a row occurs twice in `idx_mapping`: the gather goes by request row, and finds the
batch index by the inverse of the mapping.
"""

import torch
import triton
import triton.language as tl

from bt_kernels.device_code import (
    DESCRIPTOR_FIELDS,
    NUM_BLOCKS,
    SOURCE,
    TARGET,
    WIDTH,
)
from bt_kernels.device_tables import DeviceBlockTables


@triton.jit
def zero_row(descriptors, group, batch_index, BLOCK: tl.constexpr):
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    width = tl.load(descriptor + WIDTH)
    target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32)) + batch_index * width
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        tl.store(target + column, 0, mask=column < width)


@triton.jit(do_not_specialize=["num_reqs", "num_rows"])
def scatter_kernel(descriptors, inverse, idx_mapping, num_reqs, num_rows, BLOCK: tl.constexpr):
    """Each source row to where it belongs, and zeros where none does; grid `(G, rows)`."""
    group = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1).to(tl.int64)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    batch_index = tl.load(inverse + row)
    if batch_index >= 0:
        width = tl.load(descriptor + WIDTH)
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32)) + row * width
        target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32)) + batch_index * width
        length = tl.load(tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32)) + row)
        for first in range(0, length, BLOCK):
            column = first + tl.arange(0, BLOCK)
            ids = tl.load(source + column, mask=column < length)
            tl.store(target + column, ids, mask=column < length)
    live = tl.load(idx_mapping + row, mask=row < num_reqs, other=-1) >= 0
    if (row < num_rows) & (not live):
        zero_row(descriptors, group, row, BLOCK)


class Variant(DeviceBlockTables):
    """As baseline, with a plain gather whose reads are in order."""

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        if num_computed_tokens is not None or out_ptrs is not None:
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        num_reqs, rows = idx_mapping.shape[0], self.layout.max_num_reqs
        # One more, for dummy requests.
        inverse = torch.full((rows + 1,), -1, dtype=torch.int64, device=self.device)
        inverse[idx_mapping.long()] = torch.arange(num_reqs, device=self.device)
        inverse[-1] = -1
        arguments = (self.descriptors, inverse, idx_mapping, num_reqs, num_rows)
        grid = (self.layout.num_groups, rows, 1)
        self.launch(scatter_kernel, grid, arguments, (1024,), (idx_mapping,))
