"""The mapping of tokens to slots by programs of a one-launch step."""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.bundles import NOTHING, Rows, Tokens
from bt_kernels.device_code.fields import BLOCK_SHIFT, BLOCK_SIZE, CAPACITY, COMPUTED
from bt_kernels.device_code.parts import _local_position
from bt_kernels.device_code.staged_rows import _parameter, _staged_ids, _start, _starts


@triton.jit
def _spread(values, chosen):
    """Spread `[TILE]` values to `[TOKENS]`; `chosen` `[TILE, TOKENS]` is true once per column."""
    return tl.sum(tl.where(chosen, values[:, None], 0), axis=0)


@triton.jit
def _spread_rows(batch, tile, rows, token, SIZES: tl.constexpr, FEATURES: tl.constexpr):
    """Return the `Rows` of a tile's tokens; their lengths are not looked up."""
    batch_index = tile * SIZES.tile + tl.arange(0, SIZES.tile)
    live = batch_index < batch.num_reqs
    if FEATURES.requests > 0:
        past = _starts(batch, tl.where(live, batch_index + 1, 0), FEATURES)
        past = tl.where(live, past, 2147483647)
    else:
        past = tl.load(batch.query_start_loc + batch_index + 1, mask=live, other=2147483647)
    which = tl.sum((token[None, :] >= past[:, None]).to(tl.int32), axis=0)
    chosen = tl.arange(0, SIZES.tile)[:, None] == which[None, :]
    row = _spread(rows.row, chosen)
    start = tl.zeros_like(row)
    end = start
    place = start
    if FEATURES.where != NOTHING:
        start = _spread(rows.start, chosen)
        end = _spread(rows.end, chosen)
        place = _spread(rows.place, chosen)
    length = tl.zeros_like(row)  # Triton 3.6 cannot return `None`
    begin = length
    if FEATURES.requests > 0:
        begin = _spread(rows.begin, chosen)
    return Rows(row, start, end, place, end > start, length, begin)


@triton.jit
def _input(batch, field: tl.constexpr, FEATURES: tl.constexpr):
    """Return a field of the inputs that are prepared, int64."""
    place = tl.full([1], FEATURES.requests, tl.int32) + field
    return tl.sum(_parameter(batch.words, place, FEATURES.indexed), axis=0)


@triton.jit
def _look_up(group, staged, batch, token, mask, rows, FEATURES: tl.constexpr):
    """Look up the blocks of tokens, whose rows are `rows`; return `Tokens`."""
    if FEATURES.requests > 0:
        # Not from `positions`, which other programs write.
        address = _input(batch, COMPUTED, FEATURES).to(tl.pointer_type(tl.int32))
        computed = tl.load(address + rows.row, mask=mask & (rows.row >= 0), other=0)
        position = (computed + (token - rows.begin)).to(tl.int64)
    else:
        position = tl.load(batch.positions + token, mask=mask, other=0)
    block_size = tl.load(group.descriptor + BLOCK_SIZE)
    capacity = tl.load(group.descriptor + CAPACITY)
    row, start, end, place = rows.row, rows.start, rows.end, rows.place
    inside = (position >= 0) & (position < capacity) & (row >= 0)
    # Division truncates on a device and floors in the interpreter: keep it off negatives.
    position = tl.where(inside, position, 0)
    if FEATURES.sharded:
        position, mine = _local_position(group.descriptor, position, block_size)
        inside &= mine
    shift = tl.load(group.descriptor + BLOCK_SHIFT)
    if shift >= 0:  # a division of int64 takes a hundred instructions
        column = (position >> shift).to(tl.int32)
        offset = position & (block_size - 1)
    else:
        column = (position // block_size).to(tl.int32)
        offset = position % block_size
    its_columns = group.source + row.to(tl.int64) * group.width
    if FEATURES.where == NOTHING:
        block_id = tl.load(its_columns + column, mask=mask & inside, other=0)
    else:
        fresh = (column >= start) & (column < end)
        old = tl.load(its_columns + column, mask=mask & inside & (~fresh), other=0)
        new = place
        if FEATURES.ids:
            many = end - start > 1
            wanted = mask & inside & fresh & many
            new = tl.where(many, _staged_ids(staged, place + column - start, wanted, FEATURES), new)
        block_id = tl.where(fresh, new, old)
    return Tokens(token, mask, inside, block_id, offset, block_size)


@triton.jit
def _store_slots(group, tokens, SIZES: tl.constexpr):
    """Write the slots of tokens."""
    slot = tokens.block_id.to(tl.int64) * tokens.block_size + tokens.offset
    slot = tl.where(tokens.inside, slot, SIZES.pad)
    tl.store(group.slots + tokens.token, slot, mask=tokens.mask)


@triton.jit
def _requests_in(batch, first, SIZES: tl.constexpr):
    """Count the requests around the span of tokens that begins at `first`.

    Returns:
        The number of requests that end before the span; the number that begin before its end; and
        the greatest distance of a request's end from the first token of its tile, among requests
        with tokens in the span.
    """
    counts = 0
    farthest = 0
    for base in range(0, batch.num_reqs, SIZES.searched):
        request = base + tl.arange(0, SIZES.searched)
        begin = tl.load(batch.query_start_loc + tl.minimum(request, batch.num_reqs))
        its_tile = begin
        if SIZES.tile > 1:
            # A request before it in the tile may take all tokens that the tile maps.
            first_of_tile = tl.minimum(request // SIZES.tile * SIZES.tile, batch.num_reqs)
            its_tile = tl.load(batch.query_start_loc + first_of_tile)
        end = tl.load(batch.query_start_loc + tl.minimum(request + 1, batch.num_reqs))
        ended = end <= first
        begun = (request < batch.num_reqs) & (begin < first + SIZES.span)
        # Both counts in one sum.
        counts += tl.sum(ended.to(tl.int32) + (begun.to(tl.int32) << 16), axis=0)
        distance = tl.where(begun & (~ended), end - its_tile, 0)
        farthest = tl.maximum(farthest, tl.max(distance, axis=0))
    return counts & 0xFFFF, counts >> 16, farthest


@triton.jit
def _request_of(batch, token, ended, begun, FEATURES: tl.constexpr):
    """Find the request of each token, one of `[ended, begun)`, by bisection.

    The ends of requests have just been read, and reading them again is cheap. As parameters, those
    that differ among the tokens are read one after another. A token past the last one gets the last
    request.
    """
    others = begun - ended - 1
    step = 1
    while step <= others:
        step = step * 2
    step = step // 2
    found = tl.zeros_like(token) + ended
    while step > 0:
        further = found + step
        exists = further <= ended + others
        if FEATURES.requests > 0:
            end = _starts(batch, tl.where(exists, further, 0), FEATURES)
            end = tl.where(exists, end, 2147483647)
        else:
            end = tl.load(batch.query_start_loc + further, mask=exists, other=2147483647)
        found = tl.where(end <= token, further, found)
        step = step // 2
    return found


@triton.jit
def _pad(group, batch, chunk, num_chunks, SIZES: tl.constexpr, FEATURES: tl.constexpr):
    """Pad slots from the real token count to the end: every `num_chunks`-th chunk."""
    num_tokens = _start(batch, batch.num_reqs, FEATURES)
    for first in range(chunk * SIZES.block, group.num_slots, num_chunks * SIZES.block):
        token = first + tl.arange(0, SIZES.block)
        pad = tl.full([SIZES.block], SIZES.pad, dtype=tl.int64)
        mask = (token >= num_tokens) & (token < group.num_slots)
        tl.store(group.slots + token, pad, mask=mask)
