"""As fused, but apply has a program for each 128 ids of a record, rather than one for each record.

After a long prompt one program would write thousands of ids while the others are done. The grid has
as many chunks as the longest interval needs.

Wrong: if all intervals are empty, there is no chunk, and nothing is launched. But the numbers of
    blocks on the device have to change: a row overwritten with no ids owns none.
Shows: a row with blocks, overwritten with empty lists in every group, with nothing else staged;
    apply, and gather the row.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, RECORD_FIELDS, SOURCE, WIDTH
from bt_kernels.variants.fused import Variant as Base

CHUNK = 128


@triton.jit
def apply_chunks_kernel(descriptors, staging, CHUNK: tl.constexpr):
    """Writes chunks of staged intervals; grid `(records, chunks)`."""
    record = staging + tl.program_id(0) * RECORD_FIELDS
    chunk = tl.program_id(1)
    group = tl.load(record).to(tl.int64)
    row = tl.load(record + 1).to(tl.int64)
    start = tl.load(record + 2)
    length = tl.load(record + 3)
    contents = tl.load(record + 4)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    if chunk == 0:
        num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
        tl.store(num_blocks + row, start + length)
    table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    nth = chunk * CHUNK + tl.arange(0, CHUNK)
    ids = tl.load(staging + contents + nth, mask=nth < length)
    tl.store(table + row * width + start + nth, ids, mask=nth < length)


class Variant(Base):
    """Applies chunks of intervals."""

    def _launch_apply(self, records_per_group):
        longest = max(self._lengths())
        chunks = triton.cdiv(longest, CHUNK)
        if chunks:
            self.launch(
                apply_chunks_kernel,
                (sum(records_per_group), chunks, 1),
                (self.descriptors, self._ring.current),
                (CHUNK,),
                (),
            )

    def _lengths(self):
        """Ids of each record, which begin the buffer."""
        view = self._ring.current.numpy()
        fields = RECORD_FIELDS.value
        return view[3 : fields * self._staged.num_records : fields].tolist()
