"""The Triton code of the separate and the fused kernels.

The parts that do the work (`_write_record`, `_gather_row`, …) are shared, so that a fused kernel
differs from the separate ones only in how the work is cut into launches and programs.

Two arrays describe everything that does not change from step to step, or does so on the host:

`descriptors`: `[G, 4]` int64 on the device, per group: address of the source table, address of
the input table, columns of a row, tokens per block. One argument instead of four arrays, since
each argument of a launch costs host time.

`staging`: int32 in pinned host memory: first `num_blocks` `[G, max_num_reqs]`, then one record
per written row (group, row, start, length, offset of its contents in `staging`), then the
contents. Row offsets and slots are computed in int64: a block id times a block size passes 2³¹.
"""

import triton
import triton.language as tl

DESCRIPTOR_FIELDS = tl.constexpr(4)
RECORD_FIELDS = tl.constexpr(5)

# Sizes that change from step to step must not select another binary: without this, Triton
# compiles again at 1 and at multiples of 16, in the middle of serving.
STEP_SIZES = ["first_record", "num_reqs", "num_rows", "records_offset"]


@triton.jit
def _write_record(descriptors, staging, record, BLOCK: tl.constexpr):
    """Copies the contents of one record into its row of the source table."""
    group = tl.load(staging + record).to(tl.int64)
    row = tl.load(staging + record + 1).to(tl.int64)
    start = tl.load(staging + record + 2)
    length = tl.load(staging + record + 3)
    contents = tl.load(staging + record + 4)
    table = tl.load(descriptors + group * DESCRIPTOR_FIELDS).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptors + group * DESCRIPTOR_FIELDS + 2)
    for first in range(0, length, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        mask = offsets < length
        block_ids = tl.load(staging + contents + offsets, mask=mask)
        tl.store(table + row * width + start + offsets, block_ids, mask=mask)


@triton.jit
def _gather_row(
    descriptors, idx_mapping, num_blocks, max_num_reqs, group, batch_index, BLOCK: tl.constexpr
):
    """Copies the live columns of one request's source row into its row of the input table."""
    source = tl.load(descriptors + group * DESCRIPTOR_FIELDS).to(tl.pointer_type(tl.int32))
    target = tl.load(descriptors + group * DESCRIPTOR_FIELDS + 1).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptors + group * DESCRIPTOR_FIELDS + 2)
    row = tl.load(idx_mapping + batch_index).to(tl.int64)
    length = tl.load(num_blocks + group * max_num_reqs + row)
    for first in range(0, length, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        mask = columns < length
        block_ids = tl.load(source + row * width + columns, mask=mask)
        tl.store(target + batch_index * width + columns, block_ids, mask=mask)


@triton.jit
def _zero_row(descriptors, group, batch_index, BLOCK: tl.constexpr):
    """Zeroes one row of the input table, whole."""
    target = tl.load(descriptors + group * DESCRIPTOR_FIELDS + 1).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptors + group * DESCRIPTOR_FIELDS + 2)
    for first in range(0, width, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        zeros = tl.zeros([BLOCK], dtype=tl.int32)
        tl.store(target + batch_index * width + columns, zeros, mask=columns < width)


@triton.jit
def _slots_of_request(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    slot_mappings,
    max_num_tokens,
    group,
    batch_index,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slots of one request's tokens, from its row of the source table."""
    source = tl.load(descriptors + group * DESCRIPTOR_FIELDS).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptors + group * DESCRIPTOR_FIELDS + 2)
    block_size = tl.load(descriptors + group * DESCRIPTOR_FIELDS + 3)
    row = tl.load(idx_mapping + batch_index).to(tl.int64)
    first_token = tl.load(query_start_loc + batch_index)
    end_token = tl.load(query_start_loc + batch_index + 1)
    for first in range(first_token, end_token, BLOCK):
        tokens = first + tl.arange(0, BLOCK)
        mask = tokens < end_token
        position = tl.load(positions + tokens, mask=mask, other=0)
        inside = (position >= 0) & (position < width * block_size)
        # Division truncates on a device and floors in the interpreter: keep it off negatives.
        position = tl.where(inside, position, 0)
        column = position // block_size
        block_id = tl.load(source + row * width + column, mask=mask & inside, other=0)
        slot = block_id.to(tl.int64) * block_size + position % block_size
        slot = tl.where(inside, slot, PAD)
        tl.store(slot_mappings + group * max_num_tokens + tokens, slot, mask=mask)


@triton.jit
def _pad_slots(
    query_start_loc,
    slot_mappings,
    max_num_tokens,
    num_reqs,
    group,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Pads the slots from the real token count to the end of the buffer."""
    num_tokens = tl.load(query_start_loc + num_reqs)
    for first in range(num_tokens, max_num_tokens, BLOCK):
        tokens = first + tl.arange(0, BLOCK)
        pad = tl.full([BLOCK], PAD, dtype=tl.int64)
        tl.store(slot_mappings + group * max_num_tokens + tokens, pad, mask=tokens < max_num_tokens)


@triton.jit(do_not_specialize=STEP_SIZES)
def apply_writes_kernel(descriptors, staging, records_offset, first_record, BLOCK: tl.constexpr):
    """Staged writes into the source tables; grid `(records,)`.

    Launched for the records of one group at a time, or for those of all groups at once. Moves
    4 bytes in and 4 bytes out per block id, and 20 bytes in per record.
    """
    record = records_offset + (first_record + tl.program_id(0)) * RECORD_FIELDS
    _write_record(descriptors, staging, record, BLOCK)


@triton.jit(do_not_specialize=STEP_SIZES)
def gather_kernel(
    descriptors, idx_mapping, num_blocks, max_num_reqs, num_reqs, BLOCK: tl.constexpr
):
    """Source rows into batch order, further rows zeroed; grid `(G, rows)`.

    Moves 4 bytes in and 4 bytes out per live column, and 4 bytes out per column of a zeroed row.
    """
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    if batch_index < num_reqs:
        _gather_row(descriptors, idx_mapping, num_blocks, max_num_reqs, group, batch_index, BLOCK)
    else:
        _zero_row(descriptors, group, batch_index, BLOCK)


@triton.jit(do_not_specialize=STEP_SIZES)
def slots_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    slot_mappings,
    max_num_tokens,
    num_reqs,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Positions into cache slots; grid `(G, R + 1)`, the last program of a group pads.

    Moves 12 bytes in (position, block id) and 8 bytes out per token, and 8 bytes out per
    padding slot.
    """
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    if batch_index < num_reqs:
        _slots_of_request(
            descriptors,
            idx_mapping,
            query_start_loc,
            positions,
            slot_mappings,
            max_num_tokens,
            group,
            batch_index,
            PAD,
            BLOCK,
        )
    else:
        _pad_slots(query_start_loc, slot_mappings, max_num_tokens, num_reqs, group, PAD, BLOCK)


@triton.jit(do_not_specialize=STEP_SIZES)
def gather_slots_kernel(
    descriptors,
    idx_mapping,
    num_blocks,
    max_num_reqs,
    query_start_loc,
    positions,
    slot_mappings,
    max_num_tokens,
    num_reqs,
    num_rows,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gather and slots in one launch; grid `(G, num_rows + R + 1)`.

    Programs `[0, R)` gather, `[R, num_rows)` zero, the next R compute slots, the last pads. Slots
    come from the source table, which nothing in this launch writes: no program waits for another.
    Moves what `gather_kernel` and `slots_kernel` move.
    """
    group = tl.program_id(0).to(tl.int64)
    program = tl.program_id(1).to(tl.int64)
    if program < num_reqs:
        _gather_row(descriptors, idx_mapping, num_blocks, max_num_reqs, group, program, BLOCK)
    elif program < num_rows:
        _zero_row(descriptors, group, program, BLOCK)
    elif program < num_rows + num_reqs:
        _slots_of_request(
            descriptors,
            idx_mapping,
            query_start_loc,
            positions,
            slot_mappings,
            max_num_tokens,
            group,
            program - num_rows,
            PAD,
            BLOCK,
        )
    else:
        _pad_slots(query_start_loc, slot_mappings, max_num_tokens, num_reqs, group, PAD, BLOCK)
