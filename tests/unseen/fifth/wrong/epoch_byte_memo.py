"""The longest row is remembered by the number of the apply, of which only eight bits are kept.

Shows: a gather, 256 applies with writes by which a row passes a multiple of 16 blocks, and a gather:
it copies as many columns as the longest row had 256 applies ago.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code import DESCRIPTOR_FIELDS, NUM_BLOCKS, SOURCE, TARGET, WIDTH
from bt_kernels.device_code.parts import _row
from bt_kernels.variants.fused_apply import Variant as Base

COLUMNS = 16


@triton.jit(do_not_specialize=["num_reqs"])
def gather_chunks_kernel(descriptors, idx_mapping, num_reqs, COLUMNS: tl.constexpr):
    """Gathers a chunk of a row; the first program of a row zeroes it; grid `(G, rows, chunks)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(2)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    target += batch_index * width
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    if row >= 0:
        num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
        columns = chunk * COLUMNS + tl.arange(0, COLUMNS)
        live = columns < tl.load(num_blocks + row)
        tl.store(target + columns, tl.load(source + row * width + columns, mask=live), mask=live)
    elif chunk == 0:
        for first in range(0, width.to(tl.int32), COLUMNS):
            columns = first + tl.arange(0, COLUMNS)
            tl.store(target + columns, tl.zeros([COLUMNS], tl.int32), mask=columns < width)


class Variant(Base):
    """As many programs for a row as the longest one needs; to ask the device would wait for it."""

    def __init__(self, layout, device, **options) -> None:
        self._epoch, self._longest = 0, {}
        super().__init__(layout, device, **options)

    def apply_staged_writes(self) -> None:
        if self._staged or self._captured_writes is not None:
            self._begin_epoch()
        super().apply_staged_writes()

    def restore(self, state) -> None:
        super().restore(state)
        self._forget()

    def replace_tables(self, *tables) -> None:
        super().replace_tables(*tables)
        self._forget()

    def _launch_captured(self, *batch):
        self._begin_epoch()
        return super()._launch_captured(*batch)

    def _begin_epoch(self) -> None:
        self._epoch = (self._epoch + 1) & 0xFF  # a few late steps at most ask for older ones

    def _forget(self) -> None:
        self._longest.clear()

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs) -> None:
        if num_computed_tokens is not None or out_ptrs is not None or self.place.is_capturing():
            super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
            return
        longest = self._longest.get(self._epoch)
        if longest is None:
            longest = self._longest[self._epoch] = int(self.num_blocks_on_device.max())
        self.launch(
            gather_chunks_kernel,
            (self.layout.num_groups, num_rows, max(1, triton.cdiv(longest, COLUMNS))),
            (self.descriptors, idx_mapping, idx_mapping.shape[0]),
            (COLUMNS,),
            (idx_mapping,),
        )
