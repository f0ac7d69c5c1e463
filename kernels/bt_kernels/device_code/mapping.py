"""How programs of a step in one launch map tokens to slots."""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.bundles import Tokens
from bt_kernels.device_code.fields import BLOCK_SHIFT, BLOCK_SIZE, CAPACITY
from bt_kernels.device_code.parts import _local_position
from bt_kernels.device_code.staged_rows import _staged_ids


@triton.jit
def _spread(values, chosen):
    """`[TILE]` values to `[TOKENS]`, where `chosen` `[TILE, TOKENS]` is true once per column."""
    return tl.sum(tl.where(chosen, values[:, None], 0), axis=0)


@triton.jit
def _look_up(
    group,
    staged,
    batch,
    tile,
    rows,
    first,
    past_last,
    TOKENS: tl.constexpr,
    SIZES: tl.constexpr,
    FEATURES: tl.constexpr,
):
    """The `Tokens` `[first, first + TOKENS)` of a tile's requests, those before `past_last`."""
    token = first + tl.arange(0, TOKENS)
    mask = token < past_last
    position = tl.load(batch.positions + token, mask=mask, other=0)
    block_size = tl.load(group.descriptor + BLOCK_SIZE)
    capacity = tl.load(group.descriptor + CAPACITY)
    batch_index = tile * SIZES.tile + tl.arange(0, SIZES.tile)
    ends = batch.query_start_loc + batch_index + 1
    past = tl.load(ends, mask=batch_index < batch.num_reqs, other=2147483647)
    which = tl.sum((token[None, :] >= past[:, None]).to(tl.int32), axis=0)
    chosen = tl.arange(0, SIZES.tile)[:, None] == which[None, :]
    row = _spread(rows.row, chosen)
    start = _spread(rows.start, chosen)
    end = _spread(rows.end, chosen)
    place = _spread(rows.place, chosen)
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
    fresh = (column >= start) & (column < end)
    its_columns = group.source + row.to(tl.int64) * group.width
    old = tl.load(its_columns + column, mask=mask & inside & (~fresh), other=0)
    new = place
    if FEATURES.ids:
        many = end - start > 1
        wanted = mask & inside & fresh & many
        new = tl.where(many, _staged_ids(staged, place + column - start, wanted, FEATURES), new)
    return Tokens(token, mask, inside, tl.where(fresh, new, old), offset, block_size)


@triton.jit
def _store_slots(group, tokens, SIZES: tl.constexpr):
    """Writes the slots of tokens."""
    slot = tokens.block_id.to(tl.int64) * tokens.block_size + tokens.offset
    slot = tl.where(tokens.inside, slot, SIZES.pad)
    tl.store(group.slots + tokens.token, slot, mask=tokens.mask)


@triton.jit
def _find_span(batch, span, SIZES: tl.constexpr):
    """Where a span of tokens is: its tile, its first token, and the end of the tile's tokens.

    The tokens of a tile after those that it maps itself are cut into spans, which are numbered
    through all tiles. The end is 0 if there are fewer spans.
    """
    num_tiles = (batch.num_reqs + SIZES.tile - 1) // SIZES.tile
    before = 0
    tile, first, past_last = 0, 0, 0
    base = 0
    while (base < num_tiles) & (past_last == 0):
        begins = (base + tl.arange(0, SIZES.searched)) * SIZES.tile
        begin = tl.load(batch.query_start_loc + tl.minimum(begins, batch.num_reqs))
        end = tl.load(batch.query_start_loc + tl.minimum(begins + SIZES.tile, batch.num_reqs))
        spans = (tl.maximum(end - begin - SIZES.tokens, 0) + SIZES.span - 1) // SIZES.span
        until = before + tl.cumsum(spans, axis=0)
        here = (span < until) & (span >= until - spans)  # one at most
        place = begin + SIZES.tokens + (span - until + spans) * SIZES.span
        tiles = base + tl.arange(0, SIZES.searched)
        tile = tl.sum(tl.where(here, tiles, 0), axis=0)
        first = tl.sum(tl.where(here, place, 0), axis=0)
        past_last = tl.sum(tl.where(here, end, 0), axis=0)
        before += tl.sum(spans, axis=0)
        base += SIZES.searched
    return tile, first, past_last


@triton.jit
def _pad(group, batch, chunk, num_chunks, SIZES: tl.constexpr):
    """Pads slots from the real token count to the end: every `num_chunks`-th chunk."""
    num_tokens = tl.load(batch.query_start_loc + batch.num_reqs)
    for first in range(chunk * SIZES.block, group.num_slots, num_chunks * SIZES.block):
        token = first + tl.arange(0, SIZES.block)
        pad = tl.full([SIZES.block], SIZES.pad, dtype=tl.int64)
        mask = (token >= num_tokens) & (token < group.num_slots)
        tl.store(group.slots + token, pad, mask=mask)
