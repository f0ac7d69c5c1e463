"""The parts of a step in one launch; `one_launch_kernels` says how they work together."""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.fields import (
    BLOCK_SIZE,
    CAPACITY,
    DESCRIPTOR_FIELDS,
    MARK_FIELDS,
    MAX_NUM_TOKENS,
    NO_ROW,
    NUM_BLOCKS,
    REACH,
    SOURCE,
    STEP_RECORD_FIELDS,
    WIDTH,
)
from bt_kernels.device_code.parts import _local_position, _slots, _target


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
def _carried(writes, group, GROUPS: tl.constexpr, SLOTS: tl.constexpr, INDEXED: tl.constexpr):
    """The words that a launch carries for a group, `[SLOTS]`."""
    slot = tl.arange(0, SLOTS)
    if INDEXED:
        # Parameters lie side by side in their own memory, where indexing is free, but Triton cannot
        # express that. Selecting by comparison, as below, takes three instructions per word; with
        # hundreds of words, fetching these instructions would take most of the time.
        words = tl.inline_asm_elementwise(
            """{
            .reg .b64 place;
            mov.b64 place, one_launch_carrying_kernel_param_8;
            add.s64 place, place, $1;
            ld.param.b64 $0, [place];
            }""",
            "=l,l",
            [(group * SLOTS + slot) * 8],
            dtype=tl.int64,
            is_pure=True,
            pack=1,
        )
    else:
        words = tl.zeros([SLOTS], dtype=tl.int64)
        for which in tl.static_range(GROUPS):
            if group == which:  # each one is slow in the interpreter
                for index in tl.static_range(SLOTS):
                    words = tl.where(slot == index, writes[which * SLOTS + index], words)
    return words


@triton.jit
def _unpack(words):
    """Row, column and block id of words."""
    place = (words >> 32).to(tl.int32)
    return (place >> 15) & 0x7FFF, place & 0x7FFF, words.to(tl.int32)


@triton.jit
def _write_carried(descriptors, words, group):
    """Writes what a launch carries for one group into its source table."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    row, column, block_id = _unpack(words)
    written = row != NO_ROW
    tl.store(num_blocks + row, column + 1, mask=written)
    tl.store(source + row.to(tl.int64) * width + column, block_id, mask=written)


@triton.jit
def _find_carried(row, words):
    """Start, end and block id that a launch carries for rows `[TILE]`; start and end 0 if none."""
    of_row, _, _ = _unpack(words)
    # A row below 0 matches no word, since rows in words have 15 bits. At most one word matches.
    found = row[:, None] == of_row[None, :]
    word = tl.sum(tl.where(found, words[None, :], 0), axis=1)
    _, column, block_id = _unpack(word)
    return column, tl.where(word == 0, 0, column + 1), block_id


@triton.jit
def _find_marked(row, staging, group, max_num_reqs, step):
    """Start, end and value of the marks of rows `[TILE]`; start and end 0 if not of this step."""
    marked = tl.where(step > 0, row, -1) >= 0
    marks = tl.load(
        staging
        + (group * max_num_reqs + row)[:, None] * MARK_FIELDS
        + tl.arange(0, MARK_FIELDS)[None, :],
        mask=marked[:, None],
        other=0,
    )
    staged = marked & (_pick(marks, 3) == step)
    start = tl.where(staged, _pick(marks, 0), 0)
    end = tl.where(staged, _pick(marks, 1), 0)
    return start, end, _pick(marks, 2), staged


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
    index_step,
    query_start_loc,
    positions,
    num_computed_tokens,
    windowed,
    target,
    slots,
    max_num_reqs,
    num_reqs,
    num_rows,
    step,
    group,
    tile,
    chunk,
    num_chunks,
    words,
    SLOTS: tl.constexpr,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Gather and slots of a tile's requests: every `num_chunks`-th chunk of columns and tokens."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    width = tl.load(descriptor + WIDTH).to(tl.int32)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    first_index = tile * TILE
    batch_index = first_index + tl.arange(0, TILE)
    in_batch = batch_index < num_reqs
    row = tl.load(idx_mapping + batch_index * index_step, mask=in_batch, other=-1).to(tl.int32)
    live = row >= 0
    # What is staged for the rows in this step.
    if SLOTS > 0:
        start, end, place = _find_carried(row, words)
        staged = end > 0
    else:
        start, end, place, staged = _find_marked(row, staging, group, max_num_reqs, step)
    many = end - start > 1
    # Gather. A dummy request, and a row past the batch, is zeroed whole.
    owned = tl.load(num_blocks + row, mask=live & (~staged), other=0)
    length = tl.where(staged, end, owned)
    length = tl.where(live, length, width)
    length = tl.where(batch_index < num_rows, length, 0)
    first_column = tl.zeros([TILE], dtype=tl.int32)
    if num_computed_tokens is not None:
        reach = tl.load(descriptor + REACH)
        if (reach > 0) & windowed:
            computed = tl.load(num_computed_tokens + row, mask=live, other=0).to(tl.int64)
            first_column = tl.maximum(computed - reach, 0) // tl.load(descriptor + BLOCK_SIZE)
            first_column = tl.minimum(first_column, width).to(tl.int32)
    longest = tl.max(length, axis=0)
    source_row = source + row.to(tl.int64) * width
    target_row = target + batch_index.to(tl.int64) * width
    for first in range(chunk * COLUMNS, longest, num_chunks * COLUMNS):
        column = (first + tl.arange(0, COLUMNS))[None, :]
        mask = column < length[:, None]
        fresh = (column >= start[:, None]) & (column < end[:, None])
        shown = mask & live[:, None] & (column >= first_column[:, None])
        old = tl.load(source_row[:, None] + column, mask=shown & (~fresh), other=0)
        new = place[:, None]
        if SLOTS == 0:
            more = tl.load(
                staging + (place - start)[:, None] + column,
                mask=shown & fresh & many[:, None],
                other=0,
            )
            new = tl.where(many[:, None], more, new)
        ids = tl.where(shown & fresh, new, old)
        tl.store(target_row[:, None] + column, ids, mask=mask)
    # Slots. The tokens of a tile's requests lie side by side.
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
        old = tl.load(
            source + its_row.to(tl.int64) * width + column,
            mask=mask & inside & (~fresh),
            other=0,
        )
        new = its_place
        if SLOTS == 0:
            its_many = its_end - its_start > 1
            more = tl.load(
                staging + its_place + column - its_start,
                mask=mask & inside & fresh & its_many,
                other=0,
            )
            new = tl.where(its_many, more, new)
        block_id = tl.where(fresh, new, old)
        slot = block_id.to(tl.int64) * block_size + position % block_size
        tl.store(slots + token, tl.where(inside, slot, PAD), mask=mask)


@triton.jit
def _pad(
    slots, end, query_start_loc, num_reqs, chunk, num_chunks, PAD: tl.constexpr, BLOCK: tl.constexpr
):
    """Pads slots from the real token count to the end: every `num_chunks`-th chunk."""
    num_tokens = tl.load(query_start_loc + num_reqs)
    for first in range(chunk * BLOCK, end, num_chunks * BLOCK):
        token = first + tl.arange(0, BLOCK)
        pad = tl.full([BLOCK], PAD, dtype=tl.int64)
        tl.store(slots + token, pad, mask=(token >= num_tokens) & (token < end))


@triton.jit
def _part(
    part,
    descriptors,
    staging,
    idx_mapping,
    index_step,
    query_start_loc,
    positions,
    records,
    num_records,
    num_reqs,
    num_rows,
    step,
    max_num_reqs,
    num_chunks,
    num_pads,
    num_computed_tokens,
    windowed,
    out_ptrs,
    out_ptrs_step,
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
    """One of the parts that a step is cut into: records; then, by group, tiles and padding."""
    if part < num_records:
        _write_staged(descriptors, staging, records + part * STEP_RECORD_FIELDS, BLOCK)
    else:
        part -= num_records
        num_tiles = (num_rows + TILE - 1) // TILE
        in_group = num_tiles * num_chunks + num_pads
        group = (part // in_group).to(tl.int64)
        part = part % in_group
        descriptor = descriptors + group * DESCRIPTOR_FIELDS
        slots = _slots(descriptor, out, out_stride, group)
        if part < num_tiles * num_chunks:
            _tile(
                descriptors,
                staging,
                idx_mapping,
                index_step,
                query_start_loc,
                positions,
                num_computed_tokens,
                windowed,
                _target(descriptor, out_ptrs, group * out_ptrs_step),
                slots,
                max_num_reqs,
                num_reqs,
                num_rows,
                step,
                group,
                part // num_chunks,
                part % num_chunks,
                num_chunks,
                None,
                0,
                SHARDED,
                PAD,
                TILE,
                COLUMNS,
                TOKENS,
            )
        else:
            end = tl.load(descriptor + MAX_NUM_TOKENS) if out is None else out_size
            chunk = part - num_tiles * num_chunks
            _pad(slots, end, query_start_loc, num_reqs, chunk, num_pads, PAD, BLOCK)
