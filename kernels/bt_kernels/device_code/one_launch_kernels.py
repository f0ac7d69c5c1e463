"""The Triton code of a step in one launch.

No program waits for another, and none reads or writes data that another writes. A step stages one
interval of columns per row, at the end of the row. A program that gathers or maps the row takes the
columns of the interval from the staged ids. It takes all other columns from the source table, where
no program of this launch writes them. Other programs copy the staged ids into the source table,
unless the ids are in pinned memory and have been read for a row that is gathered: to read them
twice would take twice as long.

`one_launch_carrying_kernel` receives, as int64 parameters `words`, the rows that have an interval:

- a bitmap, `FEATURES.bitmap` words for each group. A word has a bit for each of `BITMAP_ROWS` rows,
  and above them 16 bits that count the intervals of all earlier rows, in this group and the groups
  before it. So one read of a word and a count of its bits give the index of a row's interval, or
  show that it has none, however many intervals there are;
- a word for each group, the address of the caller's table, or 0;
- and from `FEATURES.payload` on, as much of the other staged data as fits: first the intervals, in
  the order of groups and rows. From the highest bit down, an interval has a bit that is set unless
  the interval is one id; 15 bits of the row; 16 of the first column; and 32 of the block id. If the
  number of ids is not one (it may be 0), the last 32 are 16 bits of the number, and 16 of the place
  of the ids. Then follow, as int32 elements, a list of the pieces of `PIECE_IDS` ids that such
  intervals have, with 16 bits of the number of the piece in its interval, and 16 of the index of
  the interval; and the ids.

Data that does not fit is in pinned host memory, `staging`: the ids, or the intervals and the list,
too, in the same order. The ids of an interval then begin at a multiple of `ALIGNED_IDS` elements,
and their place is counted in these units, which lets 16 bits reach further. Only the programs of
rows that have an interval, and the programs that write intervals, read it.

Parameters cost no read of host memory, which would be the slowest part, and no buffer that must not
be refilled too early.

A launch in a CUDA graph has the same grid and arguments in every replay, and a program of
`one_launch_captured_kernel` may do several parts. So all that varies is in pinned host memory,
int32, in four parts:

- headers of four int64, one for each program. Each header is then one sector: programs that read
  the same sector of host memory are served one after another. From the highest bit down, a header
  has

  0. 16 bits of `num_reqs`, 48 of the address of `idx_mapping`;
  1. 16 bits of `num_rows`, 48 of the address of `query_start_loc`, which is 0 if there is no batch;
  2. 8 bits each of `num_chunks` and `num_pads`, 48 of the address of `positions`;
  3. 1 unused bit, which keeps the word from being negative; 31 bits of the number of the step,
     which is 0 if nothing is staged, so no mark is valid then; 31 of `num_records`; 1 that is set
     if `idx_mapping` is int64.

  If a launch has options, eight int64 for each program follow all headers: the address of
  `num_computed_tokens` or 0, the address of the array of table addresses, and the address of a
  caller's slots or 0; the distance of the table addresses, in elements; the stride of these slots
  or 0, and their number per group; and two unused;
- marks, `[G, max_num_reqs, 4]`: start, end, value, and number of the step. A mark with another step
  is void, so marks of earlier steps need not be cleared. The value is the block id if the interval
  has one column, else the place of its ids, in elements from the first mark;
- records, `[n, 8]`: group, row, start, end, value, number of the step, and two unused;
- the block ids of intervals whose number of columns is not one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.bundles import NOTHING, Batch, Cut, Staged
from bt_kernels.device_code.fields import (
    _SIZES,
    ADDRESS_BITS,
    ADDRESS_MASK,
    HEADER_FIELDS,
    INPUTS,
    MARK_FIELDS,
    OPTION_FIELDS,
)
from bt_kernels.device_code.input_parts import _num_input_parts, _prepare_part
from bt_kernels.device_code.one_launch_parts import (
    _group,
    _in_group,
    _of_group,
    _write_marked,
    _write_part,
)
from bt_kernels.device_code.staged_rows import _parameter


@triton.jit(do_not_specialize=_SIZES, do_not_specialize_on_alignment=INPUTS)
def one_launch_carrying_kernel(
    descriptors,
    idx_mapping,
    query_start_loc,
    positions,
    num_computed_tokens,
    slots_out,
    slots_stride,
    num_slots,
    index_step,
    num_reqs,
    num_rows,
    num_words,
    num_pieces,
    num_spans,
    num_wide,
    num_chunks,
    num_pads,
    staging,
    words,
    SIZES: tl.constexpr,
    FEATURES: tl.constexpr,
):
    """Run a whole step.

    Or, with `NOTHING`, gather or map alone; then there are no words but the callers' tables.

    Grid `(ceil(num_words / SIZES.words) + num_pieces + G * (num_spans + ceil(num_rows /
    SIZES.tile) + num_wide * num_chunks + num_pads),)`. The options `num_computed_tokens` and
    `slots_out` are addresses or 0, and the stride of `slots_out` is in elements.
    """
    part = tl.program_id(0)
    # Words that are indexed are found by where they are: handed on, each call would take them all.
    in_memory = None if FEATURES.indexed else words
    staged = Staged(staging, in_memory, num_words, num_pieces, None, None)
    num_writers = (num_words + SIZES.words - 1) // SIZES.words + num_pieces
    batch = Batch(
        idx_mapping, index_step, query_start_loc, positions, num_reqs, num_rows, in_memory
    )
    if FEATURES.requests > 0:
        # These begin first: those of prompts read pinned memory.
        num_inputs = _num_input_parts(batch, FEATURES)
        if part < num_inputs:
            _prepare_part(part, batch, FEATURES)
        # Less than all others, then.
        part -= num_inputs
    if part < num_writers:
        if FEATURES.where != NOTHING:  # noqa: SIM102  # it is known when compiled, the other is not
            if part >= 0:
                _write_part(part, descriptors, staged, batch, SIZES, FEATURES)
    elif FEATURES.gathers or FEATURES.maps:
        cut = Cut(num_spans, num_wide, num_chunks, num_pads)
        in_group = _in_group(batch, cut, SIZES)
        index = ((part - num_writers) // in_group).to(tl.int64)
        if FEATURES.options:
            targets: tl.constexpr = FEATURES.begin + FEATURES.groups * FEATURES.bitmap
            place = tl.full([1], targets, tl.int64) + index
            target = tl.sum(_parameter(in_memory, place, FEATURES.indexed), axis=0)
            slots = slots_out.to(tl.int64)
            slots = tl.where(slots != 0, slots + index * slots_stride * 8, slots)
            computed = num_computed_tokens.to(tl.int64)
            group = _group(descriptors, index, num_slots, target, slots, computed)
        else:
            group = _group(descriptors, index, num_slots, None, None, None)
        _of_group(group, staged, batch, cut, (part - num_writers) % in_group, SIZES, FEATURES)


@triton.jit
def _field(words, index: tl.constexpr, FIELDS: tl.constexpr):
    return tl.sum(tl.where(tl.arange(0, FIELDS) == index, words, 0), axis=0)


@triton.jit
def _upper(word):
    """Return the 16 bits above an address."""
    return (word >> ADDRESS_BITS).to(tl.int32) & 0xFFFF


@triton.jit
def _lower(word):
    return word & ADDRESS_MASK


@triton.jit(do_not_specialize=["num_groups", "max_num_reqs", "num_slots", "num_spans"])
def one_launch_captured_kernel(
    descriptors,
    staging,
    applied,
    num_groups,
    max_num_reqs,
    num_slots,
    num_spans,
    PROGRAMS: tl.constexpr,
    SIZES: tl.constexpr,
    FEATURES: tl.constexpr,
):
    """Run the step that the headers describe when the launch is replayed; grid `(PROGRAMS,)`.

    The number of the step is written to `applied` unless that is `None`.
    """
    program = tl.program_id(0)
    headers = staging.to(tl.pointer_type(tl.int64))
    # Each program reads its own words, for the same reason as marks have a sector each.
    header = tl.load(headers + program * HEADER_FIELDS + tl.arange(0, HEADER_FIELDS))
    first = _field(header, 0, HEADER_FIELDS)
    second = _field(header, 1, HEADER_FIELDS)
    third = _field(header, 2, HEADER_FIELDS)
    last = _field(header, 3, HEADER_FIELDS)
    batch = Batch(
        _lower(first).to(tl.pointer_type(tl.int32)),
        1 + (last & 1).to(tl.int32),
        _lower(second).to(tl.pointer_type(tl.int32)),
        _lower(third).to(tl.pointer_type(tl.int64)),
        _upper(first),
        _upper(second),
        None,
    )
    # Without a batch, where only records are written, there is nothing to find requests in.
    num_spans = tl.where(_lower(second) != 0, num_spans, 0)
    cut = Cut(num_spans, _upper(second), _upper(third) >> 8, _upper(third) & 0xFF)
    step = (last >> 32).to(tl.int32)
    num_records = ((last >> 1) & 0x7FFFFFFF).to(tl.int32)
    if applied is not None:
        tl.store(applied, step, mask=program == 0)
    body = staging + PROGRAMS * (HEADER_FIELDS + OPTION_FIELDS) * 2
    staged = Staged(body, None, None, None, max_num_reqs, step)
    records = num_groups * max_num_reqs * MARK_FIELDS
    in_group = _in_group(batch, cut, SIZES)
    if FEATURES.options:
        options = headers + PROGRAMS * HEADER_FIELDS + program * OPTION_FIELDS
        given = tl.load(options + tl.arange(0, OPTION_FIELDS))
    for part in range(program, num_records + num_groups * in_group, PROGRAMS):
        if part < num_records:
            _write_marked(part, descriptors, staged, records, SIZES)
        else:
            index = ((part - num_records) // in_group).to(tl.int64)
            if FEATURES.options:
                targets = _field(given, 1, OPTION_FIELDS).to(tl.pointer_type(tl.int64))
                target = tl.load(targets + index * _field(given, 3, OPTION_FIELDS))
                slots = _field(given, 2, OPTION_FIELDS)
                slots += index * _field(given, 4, OPTION_FIELDS) * 8
                limit = _field(given, 5, OPTION_FIELDS).to(tl.int32)
                computed = _field(given, 0, OPTION_FIELDS)
                group = _group(descriptors, index, limit, target, slots, computed)
            else:
                group = _group(descriptors, index, num_slots, None, None, None)
            _of_group(group, staged, batch, cut, (part - num_records) % in_group, SIZES, FEATURES)
