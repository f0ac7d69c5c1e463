"""The parts of kernels, shared by the separate and the fused ones."""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.fields import (
    BLOCK_SIZE,
    CAPACITY,
    CP_INTERLEAVE,
    CP_RANK,
    CP_SIZE,
    DESCRIPTOR_FIELDS,
    MAX_NUM_TOKENS,
    NUM_BLOCKS,
    NUM_ROWS,
    REACH,
    SLOTS,
    SOURCE,
    TARGET,
    WIDTH,
)


@triton.jit
def _write_record(descriptors, staging, record, BLOCK: tl.constexpr):
    """Copy a record's contents into its row of the source table; store the row's block count."""
    group = tl.load(staging + record).to(tl.int64)
    row = tl.load(staging + record + 1).to(tl.int64)
    start = tl.load(staging + record + 2)
    length = tl.load(staging + record + 3)
    contents = tl.load(staging + record + 4)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    table = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    tl.store(num_blocks + row, start + length)
    for first in range(0, length, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        mask = offsets < length
        block_ids = tl.load(staging + contents + offsets, mask=mask)
        tl.store(table + row * width + start + offsets, block_ids, mask=mask)


@triton.jit
def _gather_row(
    descriptors,
    idx_mapping,
    num_reqs,
    num_computed_tokens,
    out_ptrs,
    group,
    batch_index,
    BLOCK: tl.constexpr,
):
    """Copy the live columns of one request's source row into its row of the target table.

    The row of a request that owns no blocks, and each row from `num_reqs` on, is zeroed whole.

    No branch precedes the first load of block ids. The descriptor's fields are then loaded together
    with the request's row: a load behind a branch begins only when all earlier loads have ended.
    Columns are int32: with int64 columns, every address would be computed separately.
    """
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    target = _target(descriptor, out_ptrs, group) + batch_index * width
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    length = tl.load(num_blocks + row, mask=row >= 0, other=0)
    written = tl.where(row < 0, width.to(tl.int32), length)
    first_column = _first_column(descriptor, num_computed_tokens, row)
    for first in range(0, tl.maximum(written, 1), BLOCK):
        columns = first + tl.arange(0, BLOCK)
        live = (columns < length) & (columns >= first_column)
        block_ids = tl.load(source + row * width + columns, mask=live, other=0)
        tl.store(target + columns, block_ids, mask=columns < written)


@triton.jit
def _row(descriptor, idx_mapping, num_reqs, batch_index):
    """Return the row of a request, int64; below 0 if it has none, or one that does not exist."""
    row = tl.load(idx_mapping + batch_index, mask=batch_index < num_reqs, other=-1).to(tl.int64)
    return tl.where(row < tl.load(descriptor + NUM_ROWS), row, -1)


@triton.jit
def _first_column(descriptor, num_computed_tokens, row):
    """Return the first column that the sliding window reaches; 0 without one."""
    first_column = tl.zeros([], dtype=tl.int64)
    if num_computed_tokens is not None:
        reach = tl.load(descriptor + REACH)
        computed = tl.load(num_computed_tokens + row, mask=(row >= 0) & (reach > 0), other=0)
        first_token = tl.maximum(computed - reach, 0)
        block_size = tl.load(descriptor + BLOCK_SIZE)
        first_column = tl.where(reach > 0, first_token // block_size, 0)
    return first_column


@triton.jit
def _target(descriptor, out_ptrs, group):
    """Return the table that a group is gathered into: the input table, or the caller's."""
    address = tl.load(descriptor + TARGET) if out_ptrs is None else tl.load(out_ptrs + group)
    return address.to(tl.pointer_type(tl.int32))


@triton.jit
def _slots_of_request(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    out,
    out_stride,
    num_reqs,
    group,
    batch_index,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the slots of one request's tokens, from its row of the source table."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    capacity = tl.load(descriptor + CAPACITY)
    slots = _slots(descriptor, out, out_stride, group)
    row = _row(descriptor, idx_mapping, num_reqs, batch_index)
    first_token = tl.load(query_start_loc + batch_index)
    end_token = tl.load(query_start_loc + batch_index + 1)
    # A dummy request has a capacity of 0, like a group whose slot mapping is not enabled.
    capacity = tl.where(row < 0, 0, capacity)
    for first in range(0, tl.maximum(end_token - first_token, 1), BLOCK):
        tokens = first_token + first + tl.arange(0, BLOCK)
        mask = tokens < end_token
        position = tl.load(positions + tokens, mask=mask, other=0)
        inside = (position >= 0) & (position < capacity)
        # Division truncates on a device and floors in the interpreter: keep it off negatives.
        position = tl.where(inside, position, 0)
        if SHARDED:
            position, mine = _local_position(descriptor, position, block_size)
            inside &= mine
        column = position // block_size
        block_id = tl.load(source + row * width + column, mask=mask & inside, other=0)
        slot = block_id.to(tl.int64) * block_size + position % block_size
        slot = tl.where(inside, slot, PAD)
        tl.store(slots + tokens, slot, mask=mask)


@triton.jit
def _local_position(descriptor, position, block_size):
    """Convert a position in the whole sequence to one among the tokens of this rank.

    A group that is not sharded has one rank and an interleave of 1, and keeps every position.

    Returns:
        The position among the rank's own tokens, and whether the rank has it.
    """
    ranks = tl.load(descriptor + CP_SIZE)
    interleave = tl.load(descriptor + CP_INTERLEAVE)
    span = block_size * ranks
    offset = position % span
    turn = offset // interleave
    mine = turn % ranks == tl.load(descriptor + CP_RANK)
    local = turn // ranks * interleave + offset % interleave
    return position // span * block_size + local, mine


@triton.jit
def _pad_slots(
    descriptors,
    query_start_loc,
    out,
    out_stride,
    out_size,
    num_reqs,
    group,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Pad the slots from the real token count to the end of the buffer."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    slots = _slots(descriptor, out, out_stride, group)
    end = tl.load(descriptor + MAX_NUM_TOKENS) if out is None else out_size
    num_tokens = tl.load(query_start_loc + num_reqs)
    for first in range(num_tokens, end, BLOCK):
        tokens = first + tl.arange(0, BLOCK)
        tl.store(slots + tokens, tl.full([BLOCK], PAD, dtype=tl.int64), mask=tokens < end)


@triton.jit
def _slots(descriptor, out, out_stride, group):
    """Return the slots of a group: its row of `slot_mappings`, or of the caller's buffer."""
    if out is None:
        slots = tl.load(descriptor + SLOTS).to(tl.pointer_type(tl.int64))
    else:
        slots = out + group * out_stride
    return slots


@triton.jit
def _gather(descriptors, idx_mapping, num_reqs, num_computed_tokens, out_ptrs, BLOCK: tl.constexpr):
    """Gather one row of one group, for program `(group, batch index)`."""
    group = tl.program_id(0).to(tl.int64)
    batch_index = tl.program_id(1).to(tl.int64)
    _gather_row(
        descriptors,
        idx_mapping,
        num_reqs,
        num_computed_tokens,
        out_ptrs,
        group,
        batch_index,
        BLOCK,
    )


@triton.jit
def _compute_slots(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    out,
    out_stride,
    out_size,
    batch_index,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the slots of one request in one group; after the last request, the padding."""
    group = tl.program_id(0).to(tl.int64)
    if batch_index < num_reqs:
        _slots_of_request(
            descriptors,
            idx_mapping,
            query_start_loc,
            positions,
            out,
            out_stride,
            num_reqs,
            group,
            batch_index,
            SHARDED,
            PAD,
            BLOCK,
        )
    else:
        _pad_slots(
            descriptors, query_start_loc, out, out_stride, out_size, num_reqs, group, PAD, BLOCK
        )
