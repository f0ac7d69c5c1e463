"""Packs row and first column of a staged write into one int32, 16 bits for the column.

Shows in rows wider than 65,536 columns (a million tokens in blocks of 16, or small blocks): what is
appended after that column goes to a wrong column or row, and the number of blocks with it.
"""

from __future__ import annotations

from array import array

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, WIDTH
from bt_kernels.variants.fused_apply import Variant as Base

FIELDS = tl.constexpr(4)


@triton.jit
def apply_packed_kernel(descriptors, staging, BLOCK: tl.constexpr):
    """Writes staged block ids; grid `(records,)`, records of 16 bytes: one load each."""
    record = staging + tl.program_id(0) * FIELDS
    where = tl.load(record)
    group = tl.load(record + 1).to(tl.int64)
    length = tl.load(record + 2)
    place = tl.load(record + 3)
    row = (where >> 16).to(tl.int64)
    start = where & 0xFFFF
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    counts = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    tl.store(counts + row, start + length)
    for first in range(0, length, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        mask = offsets < length
        ids = tl.load(staging + place + offsets, mask=mask)
        tl.store(table + row * width + start + offsets, ids, mask=mask)


class Variant(Base):
    """Records of four fields in place of five, so that each is one aligned access."""

    def _publish(self):
        intervals = self._staged.intervals()
        fields = FIELDS.value
        place = fields * len(intervals)
        view = self._ring.advance(place + self._staged.num_ids)
        per_group = [0] * self.layout.num_groups
        records, contents = array("i"), array("i")
        for group, row, start, ids in intervals:
            per_group[group] += 1
            records.extend((row << 16 | start, group, len(ids), place))
            contents.extend(ids)
            place += len(ids)
        records += contents
        view[: len(records)] = records
        return per_group

    def _launch_apply(self, records_per_group):
        self.launch(
            apply_packed_kernel,
            (sum(records_per_group), 1, 1),
            (self.descriptors, self._ring.current),
            (1024,),
            (),
        )
