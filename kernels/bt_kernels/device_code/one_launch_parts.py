"""The parts of a step in one launch; `one_launch_kernels` describes how they work together."""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.bundles import MARKED, NOTHING, Group, Rows
from bt_kernels.device_code.fields import (
    DESCRIPTOR_FIELDS,
    NUM_BLOCKS,
    NUM_ROWS,
    SLOTS,
    SOURCE,
    STEP_RECORD_FIELDS,
    TARGET,
    WIDTH,
)
from bt_kernels.device_code.gathering import _gather_tile
from bt_kernels.device_code.mapping import (
    _look_up,
    _pad,
    _request_of,
    _requests_in,
    _spread_rows,
    _store_slots,
)
from bt_kernels.device_code.staged_rows import (
    _find_carried,
    _find_marked,
    _mapped_rows,
    _start,
    _starts,
    _write_several,
    _write_staged,
    _write_words,
)


@triton.jit
def _rows_at(group, staged, batch, batch_index, FEATURES: tl.constexpr):
    """Return the `Rows` of requests, by their places in the batch."""
    row = _mapped_rows(batch, batch_index, FEATURES)
    # One that does not exist counts as a dummy request.
    row = tl.where(row < tl.load(group.descriptor + NUM_ROWS), row, -1)
    length = tl.zeros_like(row)
    if FEATURES.where == MARKED:
        start, end, place, found = _find_marked(row, group.index, staged)
    elif FEATURES.where == NOTHING:
        start, end, place, found = length, length, length, row < -1  # of none
    else:
        start, end, place, found = _find_carried(row, group.index, staged, FEATURES)
    if FEATURES.gathers:
        num_blocks = tl.load(group.descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
        owned = tl.load(num_blocks + row, mask=(row >= 0) & (~found), other=0)
        length = tl.where(found, end, owned)
    begin = row
    if FEATURES.requests > 0:
        begin = _starts(batch, tl.minimum(batch_index, batch.num_reqs), FEATURES)
    return Rows(row, start, end, place, found, length, begin)


@triton.jit
def _group(descriptors, index, num_slots, targets, slots_out, num_computed_tokens):
    """Return the `Group` of an index.

    Args:
        descriptors: descriptors of all groups.
        index: index of the group, int64.
        num_slots: number of the group's slots.
        targets: address of the table that the group is gathered into, or 0; `None` if it is always
            the input table.
        slots_out: address of its slots, in the same way.
        num_computed_tokens: address, in the same way.
    """
    descriptor = descriptors + index * DESCRIPTOR_FIELDS
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH).to(tl.int32)
    target = _given(descriptor + TARGET, targets).to(tl.pointer_type(tl.int32))
    slots = _given(descriptor + SLOTS, slots_out).to(tl.pointer_type(tl.int64))
    windowed = False
    computed = source  # not read
    if num_computed_tokens is not None:
        windowed = num_computed_tokens != 0
        computed = num_computed_tokens.to(tl.pointer_type(tl.int32))
    return Group(index, descriptor, source, width, target, slots, num_slots, computed, windowed)


@triton.jit
def _given(field, address):
    """Return an address, or a descriptor's field in its place if it is 0 or `None`."""
    found = tl.load(field)
    if address is not None:
        found = tl.where(address != 0, address, found)
    return found


@triton.jit
def _map_spans(group, staged, batch, span, num_spans, SIZES: tl.constexpr, FEATURES: tl.constexpr):
    """Map the tokens that tiles leave over, in every `num_spans`-th span of the batch's tokens."""
    num_tokens = _start(batch, batch.num_reqs, FEATURES)
    for first in range(span * SIZES.span, num_tokens, num_spans * SIZES.span):
        if FEATURES.requests > 0:
            # To read the parameters of all requests takes too long. The host launches no spans
            # where tiles map all tokens.
            ended, begun, farthest = 0, batch.num_reqs, SIZES.tokens + 1
        else:
            ended, begun, farthest = _requests_in(batch, first, SIZES)
        if farthest > SIZES.tokens:  # else tiles map all of it
            token = first + tl.arange(0, SIZES.span)
            request = _request_of(batch, token, ended, begun, FEATURES)
            rows = _rows_at(group, staged, batch, request, FEATURES)
            its_tile = _starts(batch, request // SIZES.tile * SIZES.tile, FEATURES)
            mask = (token < num_tokens) & (token - its_tile >= SIZES.tokens)
            tokens = _look_up(group, staged, batch, token, mask, rows, FEATURES)
            _store_slots(group, tokens, SIZES)


@triton.jit
def _of_group(group, staged, batch, cut, part, SIZES: tl.constexpr, FEATURES: tl.constexpr):
    """Run one part of a group: a span of tokens, a tile, a piece of a wide row, or padding.

    A tile gathers its rows and maps the first of its tokens. The tokens after them are left to the
    spans they lie in. So all parts take about as long, however columns and tokens are spread over
    requests.
    """
    TILE: tl.constexpr = SIZES.tile
    num_tiles = (batch.num_rows + TILE - 1) // TILE
    if part < cut.num_spans:
        if FEATURES.maps:
            _map_spans(group, staged, batch, part, cut.num_spans, SIZES, FEATURES)
    elif part < cut.num_spans + num_tiles:
        tile = part - cut.num_spans
        begin = tile * TILE
        if FEATURES.maps:
            first = _start(batch, tl.minimum(begin, batch.num_reqs), FEATURES)
            past_last = _start(batch, tl.minimum(begin + TILE, batch.num_reqs), FEATURES)
            rows = _rows_at(group, staged, batch, begin + tl.arange(0, TILE), FEATURES)
            token = first + tl.arange(0, SIZES.tokens)
            its_rows = _spread_rows(batch, tile, rows, token, SIZES, FEATURES)
            # Nothing that is stored may lie between reads, or they would wait for each other.
            tokens = _look_up(group, staged, batch, token, token < past_last, its_rows, FEATURES)
            if FEATURES.gathers:
                _gather_tile(group, staged, batch, cut, 0, tile, rows, False, TILE, SIZES, FEATURES)
            _store_slots(group, tokens, SIZES)
        else:
            rows = _rows_at(group, staged, batch, begin + tl.arange(0, TILE), FEATURES)
            _gather_tile(group, staged, batch, cut, 0, tile, rows, False, TILE, SIZES, FEATURES)
    elif part < cut.num_spans + num_tiles + cut.num_wide * cut.num_chunks:
        if FEATURES.gathers:
            piece = part - cut.num_spans - num_tiles
            place = batch.num_rows - cut.num_wide + piece // cut.num_chunks
            rows = _rows_at(group, staged, batch, place + tl.arange(0, 1), FEATURES)
            chunk = piece % cut.num_chunks
            _gather_tile(group, staged, batch, cut, chunk, place, rows, True, 1, SIZES, FEATURES)
    elif FEATURES.maps:
        pad = part - cut.num_spans - num_tiles - cut.num_wide * cut.num_chunks
        _pad(group, batch, pad, cut.num_pads, SIZES, FEATURES)


@triton.jit
def _in_group(batch, cut, SIZES: tl.constexpr):
    """Return the number of parts of a group."""
    num_tiles = (batch.num_rows + SIZES.tile - 1) // SIZES.tile
    return cut.num_spans + num_tiles + cut.num_wide * cut.num_chunks + cut.num_pads


@triton.jit
def _write_part(part, descriptors, staged, batch, SIZES: tl.constexpr, FEATURES: tl.constexpr):
    """Run one of the parts that write staged ids; the parts for words come first."""
    num_writers = (staged.num_words + SIZES.words - 1) // SIZES.words
    if part < num_writers:
        _write_words(descriptors, staged, part * SIZES.words, SIZES, FEATURES)
    elif FEATURES.ids:
        _write_several(descriptors, staged, batch, part - num_writers, SIZES, FEATURES)


@triton.jit
def _write_marked(record, descriptors, staged, first, SIZES: tl.constexpr):
    """Write one record; they begin at `first`."""
    _write_staged(descriptors, staged.staging, first + record * STEP_RECORD_FIELDS, SIZES.block)
