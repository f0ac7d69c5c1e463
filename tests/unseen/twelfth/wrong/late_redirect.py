"""Writes are redirected to the null block when they are applied, not when they are staged.

Shows when the attribute changes between the two: what was staged while it was true is written with
its own ids once it is false again, and what was staged before becomes 0 if it is true by then.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, RECORD_FIELDS, SOURCE, WIDTH
from bt_kernels.staging import refuse_append, refuse_append_many
from bt_kernels.variants.fused import Variant as Base


@triton.jit
def apply_kernel(descriptors, staging, REDIRECT: tl.constexpr, BLOCK: tl.constexpr):
    """Staged ids, or as many null blocks, into the source tables; grid `(records,)`."""
    record = staging + tl.program_id(0) * RECORD_FIELDS
    descriptor = descriptors + tl.load(record).to(tl.int64) * DESCRIPTOR_FIELDS
    row = tl.load(record + 1).to(tl.int64)
    start, length = tl.load(record + 2), tl.load(record + 3)
    contents = staging + tl.load(record + 4)
    table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    target = table + row * tl.load(descriptor + WIDTH) + start
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    tl.store(num_blocks + row, start + length)
    for first in range(0, length, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        ids = tl.zeros([BLOCK], tl.int32)
        if not REDIRECT:  # else no id has to be read from the host
            ids = tl.load(contents + offsets, mask=offsets < length, other=0)
        tl.store(target + offsets, ids, mask=offsets < length)


class Variant(Base):
    """Stages ids as they are, and leaves the null block to the kernel."""

    def append_block_ids(self, req_index, new_block_ids, overwrite):
        if not self._staged.append(req_index, new_block_ids, overwrite, False):
            refuse_append(self.layout, self.num_blocks, req_index, new_block_ids, overwrite)

    def append_many(self, req_indices, new_block_ids, overwrite):
        if not self._staged.append_many(req_indices, new_block_ids, overwrite, False):
            refuse_append_many(self.layout, self.num_blocks, req_indices, new_block_ids, overwrite)

    def _launch_apply(self, records_per_group):
        constants = (self.redirect_writes_to_null_block, 128)
        arguments = (self.descriptors, self._ring.current)
        self.launch(apply_kernel, (sum(records_per_group), 1, 1), arguments, constants, ())

    def _publish_for_replay(self, *arguments):
        if self.redirect_writes_to_null_block:
            self.apply_staged_writes()  # the kernel of replays writes ids as they are
        super()._publish_for_replay(*arguments)
