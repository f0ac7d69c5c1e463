"""As one_launch, but a step with writes is a program per record, row and request (1 launch a step).

The host puts marks before the records, by which programs find the interval of a row.

Wrong: a token in a column that the row does not own gets PAD. The document has it looked up in the
source table wherever the column exists.

Shows: a step with something staged, and a position at or past the end of its row's blocks.
"""

import numpy as np
import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    NUM_BLOCKS,
    RECORD_FIELDS,
    SLOTS,
    SOURCE,
    TARGET,
    WIDTH,
    _pad_slots,
    _write_record,
)
from bt_kernels.device_code.parts import _row
from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.one_launch import Variant as Base

BLOCK = 256


@triton.jit
def _interval(descriptor, staging, group, row, max_num_reqs):
    """Start, end and place of what is staged for a row, and how long the row then is."""
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    record = tl.load(staging + group * max_num_reqs + row, mask=row >= 0, other=0)
    found = record > 0
    start = tl.load(staging + record + 2, mask=found, other=0)
    end = start + tl.load(staging + record + 3, mask=found, other=0)
    place = tl.load(staging + record + 4, mask=found, other=0)
    owned = tl.load(num_blocks + row, mask=(row >= 0) & (record == 0), other=0)
    return start, end, place, tl.where(found, end, owned)


@triton.jit(do_not_specialize=["num_reqs", "num_rows"])
def step_rows_kernel(
    descriptors,
    staging,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    num_rows,
    num_groups,
    max_num_reqs,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The whole step; grid `(G * (num_rows + R + 1) + records,)`."""
    in_group = num_rows + num_reqs + 1
    group = (tl.program_id(0) // in_group).to(tl.int64)
    part = (tl.program_id(0) % in_group).to(tl.int64)
    if group >= num_groups:
        number = tl.program_id(0) - num_groups * in_group
        first = num_groups * max_num_reqs + number * RECORD_FIELDS
        _write_record(descriptors, staging, first, BLOCK)
    elif part < num_rows:
        descriptor = descriptors + group * DESCRIPTOR_FIELDS
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        width = tl.load(descriptor + WIDTH)
        target = tl.load(descriptor + TARGET).to(tl.pointer_type(tl.int32)) + part * width
        row = _row(descriptor, idx_mapping, num_reqs, part)
        start, end, place, length = _interval(descriptor, staging, group, row, max_num_reqs)
        written = tl.where(row < 0, width.to(tl.int32), length)
        for first in range(0, written, BLOCK):
            columns = first + tl.arange(0, BLOCK)
            fresh = (columns >= start) & (columns < end)
            old = (columns < length) & (fresh == 0)
            ids = tl.load(source + row * width + columns, mask=old, other=0)
            staged = tl.load(staging + place + columns - start, mask=fresh, other=0)
            tl.store(target + columns, tl.where(fresh, staged, ids), mask=columns < written)
    elif part < num_rows + num_reqs:
        descriptor = descriptors + group * DESCRIPTOR_FIELDS
        source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
        width = tl.load(descriptor + WIDTH)
        block_size = tl.load(descriptor + BLOCK_SIZE)
        request = part - num_rows
        row = _row(descriptor, idx_mapping, num_reqs, request)
        start, end, place, length = _interval(descriptor, staging, group, row, max_num_reqs)
        capacity = tl.where(row < 0, 0, tl.load(descriptor + CAPACITY))
        # A row has no slots behind its blocks.
        capacity = tl.minimum(capacity, length.to(tl.int64) * block_size)
        begin = tl.load(query_start_loc + request)
        past_last = tl.load(query_start_loc + request + 1)
        for first in range(begin, past_last, BLOCK):
            tokens = first + tl.arange(0, BLOCK)
            mask = tokens < past_last
            position = tl.load(positions + tokens, mask=mask, other=-1)
            inside = (position >= 0) & (position < capacity)
            position = tl.where(inside, position, 0)
            column = position // block_size
            fresh = inside & (column >= start) & (column < end)
            old = inside & (fresh == 0)
            ids = tl.load(source + row * width + column, mask=old, other=0)
            staged = tl.load(staging + place + column - start, mask=fresh, other=0)
            block_id = tl.where(fresh, staged, ids).to(tl.int64)
            slot = block_id * block_size + position % block_size
            tl.store(slots + tokens, tl.where(inside, slot, PAD), mask=mask)
    else:
        _pad_slots(descriptors, query_start_loc, None, None, None, num_reqs, group, PAD, BLOCK)


class Variant(Base):
    """Replaces the launch of plain steps that have writes."""

    def _launch_step(self, batch, options):
        staged, layout = self._staged, self.layout
        if options or self.sharded or not staged:
            super()._launch_step(batch, options)
            return
        num_marks, num_records = self.num_blocks.size, staged.num_records
        size = num_marks + RECORD_FIELDS.value * num_records + staged.num_ids
        view = self._ring.advance(size)
        staged.pack(view, num_marks)
        buffer = np.frombuffer(view, np.int32)
        buffer[:num_marks] = 0
        places = num_marks + RECORD_FIELDS.value * np.arange(num_records)
        buffer[buffer[places] * layout.max_num_reqs + buffer[places + 1]] = places
        programs = layout.num_groups * (batch.num_rows + batch.num_reqs + 1) + num_records
        inputs = (batch.idx_mapping, batch.query_start_loc, batch.positions)
        self.launch(
            step_rows_kernel,
            (programs, 1, 1),
            (
                *(self.descriptors, self._ring.current, *inputs, batch.num_reqs, batch.num_rows),
                *(layout.num_groups, layout.max_num_reqs),
            ),
            (PAD_SLOT_ID, BLOCK),
            inputs,
        )
        self._ring.note_reader()
