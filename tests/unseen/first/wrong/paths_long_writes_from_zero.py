"""Fault: the branch for writes of more than 16 ids begins at column 0 of the row.

Seen: append more than 16 blocks in a step to a row that has some: they replace its first
columns.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code import (
    DESCRIPTOR_FIELDS,
    NUM_BLOCKS,
    RECORD_FIELDS,
    SOURCE,
    WIDTH,
)
from bt_kernels.fusions import FusedApply


@triton.jit(do_not_specialize=["first_record"])
def _write_kernel(descriptors, staging, first_record, BLOCK: tl.constexpr):
    """One record a program, with a branch for short ones."""
    record = staging + (first_record + tl.program_id(0)) * RECORD_FIELDS
    group = tl.load(record).to(tl.int64)
    row = tl.load(record + 1).to(tl.int64)
    start = tl.load(record + 2)
    length = tl.load(record + 3)
    contents = staging + tl.load(record + 4)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    table += row * tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    tl.store(num_blocks + row, start + length)
    offsets = tl.arange(0, BLOCK)
    if length <= BLOCK:
        ids = tl.load(contents + offsets, mask=offsets < length)
        tl.store(table + start + offsets, ids, mask=offsets < length)
    else:
        for first in range(0, length, BLOCK):
            ids = tl.load(contents + first + offsets, mask=first + offsets < length)
            tl.store(table + first + offsets, ids, mask=first + offsets < length)


class Variant(FusedApply):
    """Apply by a kernel with two branches."""

    def _launch_apply(self, records_per_group: list[int]) -> None:
        self.launch(
            _write_kernel,
            (sum(records_per_group), 1, 1),
            (self.descriptors, self._ring.current, 0),
            (16,),
            (),
        )
