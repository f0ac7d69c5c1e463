"""The Triton code of a step in one launch.

No program waits for another, and none touches what another writes. What a step stages for a row is
one interval of columns, and a *mark* tells every program that needs it where that is. A program
that gathers or maps the row takes the columns of the interval from the staged ids. It takes all
other columns from the source table, where no program of this launch writes them. Other programs
copy the staged ids into the source table.

`staging` is pinned host memory, int32, in three parts:

- marks, `[G, max_num_reqs, 4]`: start, end, value, and number of the step. A mark with another step
  is void, so marks of earlier steps need not be cleared. The value is the block id if the interval
  has one column, else where its ids begin, in elements from the start.
- records, `[n, 8]`: group, row, start, end, value, number of the step, and two unused. Each has 32
  bytes to itself, since programs that read the same sector of host memory are served one after
  another.
- the block ids of intervals of more than one column.

If a step writes few rows, `writes` carries the intervals instead: they are parameters of the
launch, one int64 word each, `SLOTS` for each group. This saves the read of host memory, which is
the slowest part, and the buffer that must not be refilled too early. From the highest bit down, a
word has bit 63, which is set if the interval has several columns; bit 62 (`TYPE_BIT`), which is
always set, so that all words have one type for Triton; 15 bits of the row (`NO_ROW` if nothing is
written); 15 bits of the first column; and 32 bits of the block id. Of several columns these are 16
bits of their number, and 16 of where their ids begin in `ids`: words of two ids each, the lower
half first, which follow `writes` in a launch whose step has any.

A launch in a CUDA graph has the same grid and arguments in every replay, and a program may do
several parts. What varies is then in front of the marks, in headers of four int64, one for each
program, so that each header is one sector. From the highest bit down, a header has:

0. 16 bits of `num_reqs`, 48 of the address of `idx_mapping`;
1. 16 bits of `num_rows`, 48 of the address of `query_start_loc`;
2. 8 bits each of `num_chunks` and `num_pads`, 48 of the address of `positions`;
3. 1 unused bit, so that no word is negative; 31 bits of the number of the step, which is 0 if
   nothing is staged, so that no mark is valid; 31 of `num_records`; 1 that is set if `idx_mapping`
   is int64.

If a launch has options, eight int64 for each program follow all headers: the address of
`num_computed_tokens` or 0, the address of the array of table addresses, and the address of the
slots; how far apart the table addresses are, in elements; the stride of slots, and how many a group
has.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.fields import (
    _SIZES,
    ADDRESS_BITS,
    ADDRESS_MASK,
    DESCRIPTOR_FIELDS,
    HEADER_FIELDS,
    INPUTS,
    MARK_FIELDS,
    MAX_NUM_TOKENS,
    OPTION_FIELDS,
)
from bt_kernels.device_code.one_launch_parts import (
    _carried,
    _of_group,
    _part,
    _write_apart,
    _write_carried,
)
from bt_kernels.device_code.parts import _slots, _target


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
    num_spans,
    num_wide,
    num_chunks,
    num_pads,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE_COLUMNS: tl.constexpr,
    OWN_COLUMNS: tl.constexpr,
    REST: tl.constexpr,
    TOKENS: tl.constexpr,
    SPAN: tl.constexpr,
    SEARCHED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A whole step.

    Grid `(num_records + G * (num_spans + ceil(num_rows / TILE) + num_wide * num_chunks +
    num_pads),)`. The first programs write one record each. Then come the parts of each group, as
    `_of_group` has them. Moves what `apply_writes_kernel` and `gather_slots_kernel` move, and 16
    bytes per row and group.
    """
    _part(
        tl.program_id(0),
        descriptors,
        staging,
        idx_mapping,
        1,
        query_start_loc,
        positions,
        records,
        num_records,
        num_reqs,
        num_rows,
        step,
        max_num_reqs,
        num_spans,
        num_wide,
        num_chunks,
        num_pads,
        None,
        True,
        None,
        1,
        None,
        None,
        None,
        False,
        PAD,
        TILE,
        COLUMNS,
        WIDE_COLUMNS,
        OWN_COLUMNS,
        REST,
        TOKENS,
        SPAN,
        SEARCHED,
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
    num_spans,
    num_wide,
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
    WIDE_COLUMNS: tl.constexpr,
    OWN_COLUMNS: tl.constexpr,
    REST: tl.constexpr,
    TOKENS: tl.constexpr,
    SPAN: tl.constexpr,
    SEARCHED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """As `one_launch_kernel`, with sliding window, context parallelism and custom outputs."""
    _part(
        tl.program_id(0),
        descriptors,
        staging,
        idx_mapping,
        1,
        query_start_loc,
        positions,
        records,
        num_records,
        num_reqs,
        num_rows,
        step,
        max_num_reqs,
        num_spans,
        num_wide,
        num_chunks,
        num_pads,
        num_computed_tokens,
        True,
        out_ptrs,
        1,
        out,
        out_stride,
        out_size,
        SHARDED,
        PAD,
        TILE,
        COLUMNS,
        WIDE_COLUMNS,
        OWN_COLUMNS,
        REST,
        TOKENS,
        SPAN,
        SEARCHED,
        BLOCK,
    )


@triton.jit
def _field(words, index: tl.constexpr, FIELDS: tl.constexpr):
    return tl.sum(tl.where(tl.arange(0, FIELDS) == index, words, 0), axis=0)


@triton.jit
def _upper(word):
    """The 16 bits above an address."""
    return (word >> ADDRESS_BITS).to(tl.int32) & 0xFFFF


@triton.jit
def _lower(word):
    return word & ADDRESS_MASK


@triton.jit(do_not_specialize=["num_groups", "max_num_reqs", "num_spans"])
def one_launch_captured_kernel(
    descriptors,
    staging,
    applied,
    num_groups,
    max_num_reqs,
    num_spans,
    PROGRAMS: tl.constexpr,
    OPTIONS: tl.constexpr,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE_COLUMNS: tl.constexpr,
    OWN_COLUMNS: tl.constexpr,
    REST: tl.constexpr,
    TOKENS: tl.constexpr,
    SPAN: tl.constexpr,
    SEARCHED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The step that the headers describe when the launch is replayed; grid `(PROGRAMS,)`.

    The number of the step is written to `applied` unless that is `None`. `OPTIONS` is false for a
    launch that never has options.
    """
    program = tl.program_id(0)
    headers = staging.to(tl.pointer_type(tl.int64))
    # Each program reads its own words, for the same reason as records have a sector each.
    header = tl.load(headers + program * HEADER_FIELDS + tl.arange(0, HEADER_FIELDS))
    first = _field(header, 0, HEADER_FIELDS)
    second = _field(header, 1, HEADER_FIELDS)
    third = _field(header, 2, HEADER_FIELDS)
    last = _field(header, 3, HEADER_FIELDS)
    idx_mapping = _lower(first).to(tl.pointer_type(tl.int32))
    query_start_loc = _lower(second).to(tl.pointer_type(tl.int32))
    positions = _lower(third).to(tl.pointer_type(tl.int64))
    num_reqs = _upper(first)
    num_rows = _upper(second)
    num_chunks = _upper(third) >> 8
    num_pads = _upper(third) & 0xFF
    step = (last >> 32).to(tl.int32)
    num_records = ((last >> 1) & 0x7FFFFFFF).to(tl.int32)
    index_step = 1 + (last & 1).to(tl.int32)
    if applied is not None:
        tl.store(applied, step, mask=program == 0)
    num_tiles = (num_rows + TILE - 1) // TILE
    num_wide = num_rows
    in_group = num_spans + num_tiles + num_wide * num_chunks + num_pads
    num_parts = num_records + num_groups * in_group
    records = num_groups * max_num_reqs * MARK_FIELDS
    body = staging + PROGRAMS * (HEADER_FIELDS + OPTION_FIELDS) * 2
    if OPTIONS:
        options = headers + PROGRAMS * HEADER_FIELDS + program * OPTION_FIELDS
        given = tl.load(options + tl.arange(0, OPTION_FIELDS))
        computed = _field(given, 0, OPTION_FIELDS)
        for part in range(program, num_parts, PROGRAMS):
            _part(
                part,
                descriptors,
                body,
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
                num_spans,
                num_wide,
                num_chunks,
                num_pads,
                computed.to(tl.pointer_type(tl.int32)),
                computed != 0,
                _field(given, 1, OPTION_FIELDS).to(tl.pointer_type(tl.int64)),
                _field(given, 3, OPTION_FIELDS),
                _field(given, 2, OPTION_FIELDS).to(tl.pointer_type(tl.int64)),
                _field(given, 4, OPTION_FIELDS),
                _field(given, 5, OPTION_FIELDS).to(tl.int32),
                SHARDED,
                PAD,
                TILE,
                COLUMNS,
                WIDE_COLUMNS,
                OWN_COLUMNS,
                REST,
                TOKENS,
                SPAN,
                SEARCHED,
                BLOCK,
            )
    else:
        for part in range(program, num_parts, PROGRAMS):
            _part(
                part,
                descriptors,
                body,
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
                num_spans,
                num_wide,
                num_chunks,
                num_pads,
                None,
                True,
                None,
                1,
                None,
                None,
                None,
                SHARDED,
                PAD,
                TILE,
                COLUMNS,
                WIDE_COLUMNS,
                OWN_COLUMNS,
                REST,
                TOKENS,
                SPAN,
                SEARCHED,
                BLOCK,
            )


@triton.jit(do_not_specialize=_SIZES, do_not_specialize_on_alignment=INPUTS)
def one_launch_carrying_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_reqs,
    num_rows,
    num_apart,
    num_spans,
    num_wide,
    num_chunks,
    num_pads,
    writes,
    ids,
    GROUPS: tl.constexpr,
    SLOTS: tl.constexpr,
    IDS: tl.constexpr,
    INDEXED: tl.constexpr,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE_COLUMNS: tl.constexpr,
    OWN_COLUMNS: tl.constexpr,
    REST: tl.constexpr,
    TOKENS: tl.constexpr,
    SPAN: tl.constexpr,
    SEARCHED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A whole step whose writes are parameters; reads no host memory.

    Grid `(G * (1 + num_apart + num_spans + ceil(num_rows / TILE) + num_wide * num_chunks +
    num_pads),)`.
    """
    num_tiles = (num_rows + TILE - 1) // TILE
    in_group = 1 + num_apart + num_spans + num_tiles + num_wide * num_chunks + num_pads
    group = (tl.program_id(0) // in_group).to(tl.int64)
    part = tl.program_id(0) % in_group
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    words = _carried(writes, group, GROUPS, SLOTS, INDEXED)
    if part == 0:
        _write_carried(descriptors, words, group)
    elif part <= num_apart:
        if IDS > 0:
            _write_apart(
                descriptors,
                words,
                ids,
                group,
                part - 1,
                GROUPS * SLOTS * 8,
                IDS,
                INDEXED,
                BLOCK,
            )
    else:
        _of_group(
            descriptor,
            None,
            idx_mapping,
            1,
            query_start_loc,
            positions,
            None,
            True,
            _target(descriptor, None, group),
            _slots(descriptor, None, None, group),
            tl.load(descriptor + MAX_NUM_TOKENS),
            None,
            num_reqs,
            num_rows,
            None,
            num_spans,
            num_wide,
            num_chunks,
            num_pads,
            group,
            part - 1 - num_apart,
            words,
            ids,
            SLOTS,
            GROUPS * SLOTS * 8,
            IDS,
            INDEXED,
            False,
            PAD,
            TILE,
            COLUMNS,
            WIDE_COLUMNS,
            OWN_COLUMNS,
            REST,
            TOKENS,
            SPAN,
            SEARCHED,
            BLOCK,
        )
