"""Start and length of a staged write share 32 bits, 16 each, too few for very long rows.

Shows: rows of more than 65,536 blocks (pages of one token, contexts of 128 K): an append that begins
at column 65,536 or after, or is as long, is written elsewhere, and the row's length is wrong.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, WIDTH
from bt_kernels.staging import RECORD_FIELDS
from bt_kernels.variants.fused import Variant as Base

BLOCK = 1024


@triton.jit
def apply_spans_kernel(descriptors, spans, staging, BLOCK: tl.constexpr):
    """Writes staged ids by records of 16 bytes: group, row, span, place; grid `(records,)`."""
    record = spans + tl.program_id(0) * 4
    group = tl.load(record).to(tl.int64)
    row = tl.load(record + 1).to(tl.int64)
    span = tl.load(record + 2)
    place = tl.load(record + 3)
    start = (span >> 16) & 0xFFFF
    length = span & 0xFFFF
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    target = source + row * tl.load(descriptor + WIDTH) + start
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    tl.store(num_blocks + row, start + length)
    for first in range(0, length, BLOCK):
        offset = first + tl.arange(0, BLOCK)
        ids = tl.load(staging + place + offset, mask=offset < length)
        tl.store(target + offset, ids, mask=offset < length)


class Variant(Base):
    """Records are read with one access of 16 bytes."""

    def _launch_apply(self, records_per_group) -> None:
        number, staging = sum(records_per_group), self._ring.current
        records = staging[: RECORD_FIELDS * number].numpy().reshape(number, RECORD_FIELDS)
        group, row, start, length, place = records.T
        spans = np.stack([group, row, start << 16 | length, place], axis=1).astype(np.int32)
        self._spans = torch.from_numpy(spans).to(self.device)
        self.launch(
            apply_spans_kernel,
            (number, 1, 1),
            (self.descriptors, self._spans, staging),
            (BLOCK,),
            (),
        )
