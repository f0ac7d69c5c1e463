"""The Triton code of a step in one launch.

No program waits for another, and none touches what another writes. What is staged for a row in a
step is one interval of columns, which every program that needs it knows from a *mark*. A program
that gathers or maps the row takes the columns of the interval from the staged ids, and all others
from the source table, where no program of this launch writes them. Other programs copy the staged
ids into the source table.

`staging` is pinned host memory, int32, in three parts:

- marks, `[G, max_num_reqs, 4]`: start, end, value, and the number of the step, without which a
  mark is void: marks of steps before need not be cleared. The value is the block id of an interval
  of one column, else where its ids are, in elements from the start.
- records, `[n, 8]`: group, row, start, end, value, and three of no meaning. Each has 32 bytes for
  itself, since programs that read one sector of host memory are served one after another.
- the block ids of intervals of more than one column.
"""

import triton
import triton.language as tl

from bt_kernels.device_code import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    INPUTS,
    MAX_NUM_TOKENS,
    NUM_BLOCKS,
    REACH,
    SOURCE,
    WIDTH,
    _local_position,
    _slots,
    _target,
)

MARK_FIELDS = tl.constexpr(4)
STEP_RECORD_FIELDS = tl.constexpr(8)


@triton.jit
def _pick(fields, index: tl.constexpr):
    """Column `index` of `[TILE, MARK_FIELDS]`."""
    which = tl.arange(0, MARK_FIELDS)[None, :]
    return tl.sum(tl.where(which == index, fields, 0), axis=1)


@triton.jit
def _spread(values, chosen):
    """`[TILE]` values to `[TOKENS]`, where `chosen` `[TILE, TOKENS]` is true once per column."""
    return tl.sum(tl.where(chosen, values[:, None], 0), axis=0)


@triton.jit
def _write_staged(descriptors, staging, record, BLOCK: tl.constexpr):
    """Copies one record's ids into the source table, and notes how many blocks the row has."""
    group = tl.load(staging + record).to(tl.int64)
    row = tl.load(staging + record + 1).to(tl.int64)
    start = tl.load(staging + record + 2)
    end = tl.load(staging + record + 3)
    value = tl.load(staging + record + 4)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32)) + row * width
    tl.store(num_blocks + row, end)
    if end - start == 1:
        tl.store(source + start, value)
    else:
        for first in range(start, end, BLOCK):
            columns = first + tl.arange(0, BLOCK)
            mask = columns < end
            ids = tl.load(staging + value + columns - start, mask=mask)
            tl.store(source + columns, ids, mask=mask)


@triton.jit
def _tile(
    descriptors,
    staging,
    idx_mapping,
    query_start_loc,
    positions,
    num_computed_tokens,
    out_ptrs,
    out,
    out_stride,
    max_num_reqs,
    num_reqs,
    num_rows,
    step,
    group,
    tile,
    chunk,
    num_chunks,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Gather and slots of the requests of a tile: every so many chunks of columns and tokens."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    width = tl.load(descriptor + WIDTH).to(tl.int32)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    first_index = tile * TILE
    batch_index = first_index + tl.arange(0, TILE)
    in_batch = batch_index < num_reqs
    row = tl.load(idx_mapping + batch_index, mask=in_batch, other=-1).to(tl.int32)
    live = row >= 0
    # Marks: what is staged for the rows in this step.
    marks = tl.load(
        staging
        + (group * max_num_reqs + row)[:, None] * MARK_FIELDS
        + tl.arange(0, MARK_FIELDS)[None, :],
        mask=live[:, None],
        other=0,
    )
    staged = live & (_pick(marks, 3) == step)
    start = tl.where(staged, _pick(marks, 0), 0)
    end = tl.where(staged, _pick(marks, 1), 0)
    place = _pick(marks, 2)
    many = end - start > 1
    # Gather. A dummy request, and a row past the batch, is zeroed whole.
    owned = tl.load(num_blocks + row, mask=live & (~staged), other=0)
    length = tl.where(staged, end, owned)
    length = tl.where(live, length, width)
    length = tl.where(batch_index < num_rows, length, 0)
    first_column = tl.zeros([TILE], dtype=tl.int32)
    if num_computed_tokens is not None:
        reach = tl.load(descriptor + REACH)
        if reach > 0:
            computed = tl.load(num_computed_tokens + row, mask=live, other=0).to(tl.int64)
            first_column = tl.maximum(computed - reach, 0) // tl.load(descriptor + BLOCK_SIZE)
            first_column = tl.minimum(first_column, width).to(tl.int32)
    target = _target(descriptor, out_ptrs, group)
    longest = tl.max(length, axis=0)
    source_row = source + row.to(tl.int64) * width
    target_row = target + batch_index.to(tl.int64) * width
    fresh_ids = staging + (place - start)
    for first in range(chunk * COLUMNS, longest, num_chunks * COLUMNS):
        column = (first + tl.arange(0, COLUMNS))[None, :]
        mask = column < length[:, None]
        fresh = (column >= start[:, None]) & (column < end[:, None])
        shown = mask & live[:, None] & (column >= first_column[:, None])
        old = tl.load(source_row[:, None] + column, mask=shown & (~fresh), other=0)
        new = tl.load(
            fresh_ids[:, None] + column,
            mask=shown & fresh & many[:, None],
            other=0,
        )
        new = tl.where(many[:, None], new, place[:, None])
        ids = tl.where(shown & fresh, new, old)
        tl.store(target_row[:, None] + column, ids, mask=mask)
    # Slots. The tokens of a tile's requests lie side by side.
    slots = _slots(descriptor, out, out_stride, group)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    capacity = tl.load(descriptor + CAPACITY)
    past = tl.load(query_start_loc + batch_index + 1, mask=in_batch, other=2147483647)
    first_token = tl.load(query_start_loc + tl.minimum(first_index, num_reqs))
    end_token = tl.load(query_start_loc + tl.minimum(first_index + TILE, num_reqs))
    for first in range(first_token + chunk * TOKENS, end_token, num_chunks * TOKENS):
        token = first + tl.arange(0, TOKENS)
        mask = token < end_token
        which = tl.sum((token[None, :] >= past[:, None]).to(tl.int32), axis=0)
        chosen = tl.arange(0, TILE)[:, None] == which[None, :]
        its_row = _spread(row, chosen)
        its_start = _spread(start, chosen)
        its_end = _spread(end, chosen)
        its_place = _spread(place, chosen)
        position = tl.load(positions + token, mask=mask, other=0)
        inside = (position >= 0) & (position < capacity) & (its_row >= 0)
        # Division truncates on a device and floors in the interpreter: keep it off negatives.
        position = tl.where(inside, position, 0)
        if SHARDED:
            position, mine = _local_position(descriptor, position, block_size)
            inside &= mine
        column = (position // block_size).to(tl.int32)
        fresh = (column >= its_start) & (column < its_end)
        its_many = its_end - its_start > 1
        old = tl.load(
            source + its_row.to(tl.int64) * width + column,
            mask=mask & inside & (~fresh),
            other=0,
        )
        new = tl.load(
            staging + its_place + column - its_start,
            mask=mask & inside & fresh & its_many,
            other=0,
        )
        block_id = tl.where(fresh, tl.where(its_many, new, its_place), old)
        slot = block_id.to(tl.int64) * block_size + position % block_size
        tl.store(slots + token, tl.where(inside, slot, PAD), mask=mask)


@triton.jit
def _pad(
    descriptors,
    query_start_loc,
    out,
    out_stride,
    out_size,
    num_reqs,
    group,
    chunk,
    num_chunks,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Pads the slots from the real token count to the end: every so many chunks of the buffer."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    slots = _slots(descriptor, out, out_stride, group)
    end = tl.load(descriptor + MAX_NUM_TOKENS) if out is None else out_size
    num_tokens = tl.load(query_start_loc + num_reqs)
    for first in range(chunk * BLOCK, end, num_chunks * BLOCK):
        token = first + tl.arange(0, BLOCK)
        pad = tl.full([BLOCK], PAD, dtype=tl.int64)
        tl.store(slots + token, pad, mask=(token >= num_tokens) & (token < end))


@triton.jit
def _step(
    descriptors,
    staging,
    idx_mapping,
    query_start_loc,
    positions,
    records,
    num_records,
    num_reqs,
    num_rows,
    step,
    max_num_reqs,
    num_tiles,
    num_chunks,
    num_pads,
    num_computed_tokens,
    out_ptrs,
    out,
    out_stride,
    out_size,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    if program < num_records:
        _write_staged(descriptors, staging, records + program * STEP_RECORD_FIELDS, BLOCK)
    else:
        program -= num_records
        in_group = num_tiles * num_chunks + num_pads
        group = (program // in_group).to(tl.int64)
        program = program % in_group
        if program < num_tiles * num_chunks:
            _tile(
                descriptors,
                staging,
                idx_mapping,
                query_start_loc,
                positions,
                num_computed_tokens,
                out_ptrs,
                out,
                out_stride,
                max_num_reqs,
                num_reqs,
                num_rows,
                step,
                group,
                program // num_chunks,
                program % num_chunks,
                num_chunks,
                SHARDED,
                PAD,
                TILE,
                COLUMNS,
                TOKENS,
            )
        else:
            _pad(
                descriptors,
                query_start_loc,
                out,
                out_stride,
                out_size,
                num_reqs,
                group,
                program - num_tiles * num_chunks,
                num_pads,
                PAD,
                BLOCK,
            )


_SIZES = [
    "records",
    "num_records",
    "num_reqs",
    "num_rows",
    "step",
    "max_num_reqs",
    "num_tiles",
    "num_chunks",
    "num_pads",
    "out_stride",
    "out_size",
]


@triton.jit(do_not_specialize=_SIZES, do_not_specialize_on_alignment=INPUTS)
def one_launch_kernel(
    descriptors,
    staging,
    idx_mapping,
    query_start_loc,
    positions,
    records,
    num_records,
    num_reqs,
    num_rows,
    step,
    max_num_reqs,
    num_tiles,
    num_chunks,
    num_pads,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A whole step; grid `(num_records + G * (num_tiles * num_chunks + num_pads),)`.

    Programs write a record each; then, group by group, gather and map the requests of a tile, each
    every so many chunks of columns and tokens, and pad the rest. Moves what `apply_writes_kernel`
    and `gather_slots_kernel` move, and 16 bytes per row and group.
    """
    _step(
        descriptors,
        staging,
        idx_mapping,
        query_start_loc,
        positions,
        records,
        num_records,
        num_reqs,
        num_rows,
        step,
        max_num_reqs,
        num_tiles,
        num_chunks,
        num_pads,
        None,
        None,
        None,
        None,
        None,
        False,
        PAD,
        TILE,
        COLUMNS,
        TOKENS,
        BLOCK,
    )


@triton.jit(do_not_specialize=_SIZES, do_not_specialize_on_alignment=INPUTS)
def one_launch_options_kernel(
    descriptors,
    staging,
    idx_mapping,
    query_start_loc,
    positions,
    records,
    num_records,
    num_reqs,
    num_rows,
    step,
    max_num_reqs,
    num_tiles,
    num_chunks,
    num_pads,
    num_computed_tokens,
    out_ptrs,
    out,
    out_stride,
    out_size,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """As `one_launch_kernel`, with sliding window, context parallelism and custom outputs."""
    _step(
        descriptors,
        staging,
        idx_mapping,
        query_start_loc,
        positions,
        records,
        num_records,
        num_reqs,
        num_rows,
        step,
        max_num_reqs,
        num_tiles,
        num_chunks,
        num_pads,
        num_computed_tokens,
        out_ptrs,
        out,
        out_stride,
        out_size,
        SHARDED,
        PAD,
        TILE,
        COLUMNS,
        TOKENS,
        BLOCK,
    )
