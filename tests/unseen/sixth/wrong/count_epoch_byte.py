"""Uploads the numbers of blocks of rows changed since the last apply, by epochs that are one byte.

Shows in a long run: in each 256th apply that has something to write the epoch is 0, which is not
after 255, so the rows written then keep an old number of blocks for gather.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, RECORD_FIELDS, SOURCE, WIDTH
from bt_kernels.variants.fused_apply import Variant as Base


@triton.jit
def apply_ids_kernel(descriptors, staging, BLOCK: tl.constexpr):
    """Writes staged block ids, and no numbers of blocks; grid `(records,)`."""
    record = staging + tl.program_id(0) * RECORD_FIELDS
    group = tl.load(record).to(tl.int64)
    row = tl.load(record + 1).to(tl.int64)
    start = tl.load(record + 2)
    length = tl.load(record + 3)
    contents = tl.load(record + 4)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    for first in range(0, length, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        mask = offsets < length
        ids = tl.load(staging + contents + offsets, mask=mask)
        tl.store(table + row * width + start + offsets, ids, mask=mask)


class Variant(Base):
    """Numbers of blocks go to the device in one copy, not by a store of each record."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._changed_at = np.zeros(layout.max_num_reqs, dtype=np.uint8)
        self._epoch = self._uploaded_at = 0

    def apply_staged_writes(self):
        rows = {row for _, row, _, _ in self._staged.intervals()} if self._staged else ()
        super().apply_staged_writes()
        if not rows:
            return
        self._epoch = (self._epoch + 1) & 0xFF
        self._changed_at[list(rows)] = self._epoch
        changed = np.flatnonzero(self._changed_at > self._uploaded_at)
        self._uploaded_at = self._epoch
        if len(changed):
            counts = torch.from_numpy(self.num_blocks[:, changed]).to(self.device)
            self.num_blocks_on_device[:, torch.from_numpy(changed).to(self.device)] = counts

    def _launch_apply(self, records_per_group):
        self.launch(
            apply_ids_kernel,
            (sum(records_per_group), 1, 1),
            (self.descriptors, self._ring.current),
            (128,),
            (),
        )
