"""The lookup and application of staged writes by programs of a one-launch step."""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.bundles import CARRIED, LISTED
from bt_kernels.device_code.fields import (
    ALIGNED_IDS,
    BITMAP_ROWS,
    DESCRIPTOR_FIELDS,
    LOGIT_BITS,
    LOGIT_MASK,
    MARK_FIELDS,
    NUM_BLOCKS,
    PIECE_IDS,
    ROW_BITS,
    SOURCE,
    START_MASK,
    WIDTH,
)


@triton.jit
def _pick(fields, index: tl.constexpr):
    """Return column `index` of `[TILE, MARK_FIELDS]`."""
    which = tl.arange(0, MARK_FIELDS)[None, :]
    return tl.sum(tl.where(which == index, fields, 0), axis=1)


@triton.jit
def _parameter(words, index, INDEXED: tl.constexpr):
    """Read words of the parameters; int64, with the shape of `index`."""
    if INDEXED:
        # Parameters lie side by side in their own memory, where indexing is free, but Triton cannot
        # express that. Selecting by comparison takes three instructions per word; with hundreds of
        # words, fetching these instructions would take most of the time.
        found = tl.inline_asm_elementwise(
            """{
            .reg .b64 place;
            mov.b64 place, one_launch_carrying_kernel_param_18;
            add.s64 place, place, $1;
            ld.param.b64 $0, [place];
            }""",
            "=l,l",
            [index.to(tl.int64) * 8],
            dtype=tl.int64,
            is_pure=True,
            pack=1,
        )
    else:
        found = tl.load(words + index)
    return found


@triton.jit
def _half(words, index, INDEXED: tl.constexpr):
    """Read parameters like `_parameter`, but int32 elements."""
    if INDEXED:
        found = tl.inline_asm_elementwise(
            """{
            .reg .b64 place;
            mov.b64 place, one_launch_carrying_kernel_param_18;
            add.s64 place, place, $1;
            ld.param.b32 $0, [place];
            }""",
            "=r,l",
            [index.to(tl.int64) * 4],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    else:
        found = tl.load(words.to(tl.pointer_type(tl.int32)) + index)
    return found


@triton.jit
def _count_bits(words, INDEXED: tl.constexpr):
    """Count the set bits of int64 words; int32."""
    if INDEXED:
        number = tl.inline_asm_elementwise(
            "popc.b64 $0, $1;", "=r,l", [words], dtype=tl.int32, is_pure=True, pack=1
        )
    else:
        # Sums of neighbouring 1, 2 and 4 bits; then of all bytes, which gather in the highest.
        words = words - ((words >> 1) & 0x5555555555555555)
        words = (words & 0x3333333333333333) + ((words >> 2) & 0x3333333333333333)
        words = (words + (words >> 4)) & 0x0F0F0F0F0F0F0F0F
        words = words + (words >> 8)
        words = words + (words >> 16)
        number = ((words + (words >> 32)) & 0x7F).to(tl.int32)
    return number


@triton.jit
def _before(word):
    """Return the number of intervals before the rows of a bitmap's word."""
    return ((word >> BITMAP_ROWS) & 0xFFFF).to(tl.int32)


@triton.jit
def _unpack(interval, FEATURES: tl.constexpr):
    """Return row, first column, value, length, and whether there are several ids, of intervals.

    The value is the block id of an interval of one, else the place of its ids.
    """
    several = interval < 0
    value = interval.to(tl.int32)
    length = tl.where(several, (value >> 16) & 0xFFFF, 1)
    place = value & 0xFFFF
    if FEATURES.where != CARRIED:
        place = place * ALIGNED_IDS
    value = tl.where(several, place, value)
    row = ((interval >> 48) & 0x7FFF).to(tl.int32)
    return row, ((interval >> 32) & 0xFFFF).to(tl.int32), value, length, several


@triton.jit
def _interval(staged, index, mask, FEATURES: tl.constexpr):
    """Read intervals by their index, from the parameters or from pinned memory."""
    if FEATURES.where != LISTED:
        index = FEATURES.payload + tl.where(mask, index, 0)
        found = _parameter(staged.words, index, FEATURES.indexed)
    else:
        found = tl.load(staged.staging + index, mask=mask, other=0)
    return found


@triton.jit
def _listed(staged):
    """Return the number of words of intervals and of the list of pieces."""
    return staged.num_words + (staged.num_pieces + 1) // 2


@triton.jit
def _first_id(staged, place, FEATURES: tl.constexpr):
    """Return the addresses of ids in pinned memory, by their places."""
    first = staged.staging
    if FEATURES.where == LISTED:
        first += (_listed(staged) + 1) // 2 * 2
    return first.to(tl.pointer_type(tl.int32)) + place


@triton.jit
def _staged_ids(staged, places, mask, FEATURES: tl.constexpr):
    """Read the ids of intervals that have several, by their places."""
    if FEATURES.where == CARRIED:
        first = 2 * (FEATURES.payload + _listed(staged))
        found = _half(staged.words, tl.where(mask, first + places, 0), FEATURES.indexed)
    else:
        found = tl.load(_first_id(staged, places, FEATURES), mask=mask, other=0)
    return found


@triton.jit
def _piece(staged, which, FEATURES: tl.constexpr):
    """Return entry `which` of the list of pieces: its interval, and its number in the interval."""
    if FEATURES.where == LISTED:
        listed = (staged.staging + staged.num_words).to(tl.pointer_type(tl.int32))
        found = tl.load(listed + which)
    else:
        first = 2 * (FEATURES.payload + staged.num_words)
        found = _half(staged.words, first + which, FEATURES.indexed)
    return found & 0xFFFF, found >> 16


@triton.jit
def _find_carried(row, group, staged, FEATURES: tl.constexpr):
    """Find the intervals of rows `[TILE]`: start, end (0 if none), value, and presence."""
    known = tl.maximum(row, 0)
    word = _parameter(
        staged.words,
        FEATURES.begin + group * FEATURES.bitmap + known // BITMAP_ROWS,
        FEATURES.indexed,
    )
    bit = (known % BITMAP_ROWS).to(tl.int64)
    found = (row >= 0) & (((word >> bit) & 1) > 0)
    below = word & ((tl.full(bit.shape, 1, tl.int64) << bit) - 1)
    index = _before(word) + _count_bits(below, FEATURES.indexed)
    _, column, value, length, _ = _unpack(_interval(staged, index, found, FEATURES), FEATURES)
    return tl.where(found, column, 0), tl.where(found, column + length, 0), value, found


@triton.jit
def _find_marked(row, group, staged):
    """Find intervals like `_find_carried`, by the marks of rows; marks of another step are void."""
    marked = tl.where(staged.step > 0, row, -1) >= 0
    marks = tl.load(
        staged.staging
        + (group * staged.max_num_reqs + row)[:, None] * MARK_FIELDS
        + tl.arange(0, MARK_FIELDS)[None, :],
        mask=marked[:, None],
        other=0,
    )
    found = marked & (_pick(marks, 3) == staged.step)
    start = tl.where(found, _pick(marks, 0), 0)
    end = tl.where(found, _pick(marks, 1), 0)
    return start, end, _pick(marks, 2), found


@triton.jit
def _group_of(staged, index, FEATURES: tl.constexpr):
    """Return the groups of intervals, by their index, int64."""
    group = tl.zeros_like(index).to(tl.int64)
    for following in range(1, FEATURES.groups):
        place = tl.full([1], FEATURES.begin + following * FEATURES.bitmap, tl.int32)
        word = _parameter(staged.words, place, FEATURES.indexed)
        first = tl.sum(_before(word), axis=0)
        group += (index >= first).to(tl.int64)
    return group


@triton.jit
def _write_words(descriptors, staged, first, SIZES: tl.constexpr, FEATURES: tl.constexpr):
    """Store the block counts of rows that have an interval, and write intervals of a single id."""
    index = first + tl.arange(0, SIZES.words)
    written = index < staged.num_words
    interval = _interval(staged, index, written, FEATURES)
    row, column, block_id, length, several = _unpack(interval, FEATURES)
    descriptor = descriptors + _group_of(staged, index, FEATURES) * DESCRIPTOR_FIELDS
    num_blocks = tl.load(descriptor + NUM_BLOCKS, mask=written, other=0)
    width = tl.load(descriptor + WIDTH, mask=written, other=0)
    source = tl.load(descriptor + SOURCE, mask=written, other=0)
    tl.store(num_blocks.to(tl.pointer_type(tl.int32)) + row, column + length, mask=written)
    place = source.to(tl.pointer_type(tl.int32)) + row.to(tl.int64) * width + column
    tl.store(place, block_id, mask=written & (~several))


@triton.jit
def _mapped_rows(batch, batch_index, FEATURES: tl.constexpr):
    """Load the rows of requests, int32; -1 past the batch, and for a row that int32 does not hold.

    An int64 row is read as two halves: both dtypes of the mapping then take one binary.
    """
    if FEATURES.requests > 0:
        inside = batch_index < batch.num_reqs
        word = _parameter(batch.words, tl.where(inside, batch_index, 0), FEATURES.indexed)
        row = tl.where(inside, _row_in(word), -1)
    else:
        place = batch.idx_mapping + batch_index * batch.index_step
        low = tl.load(place, mask=batch_index < batch.num_reqs, other=-1)
        wide = batch_index < tl.where(batch.index_step > 1, batch.num_reqs, 0)
        upper = tl.load(place + 1, mask=wide, other=0)
        row = tl.where(wide & (upper != (low >> 31)), -1, low)
    return row


@triton.jit
def _row_in(word):
    """Return the row of a request, from its word; int32."""
    return ((word >> ROW_BITS) & 0x7FFF).to(tl.int32)


@triton.jit
def _start_in(word):
    """Return the first token of a request, from its word; int32."""
    return (word & START_MASK).to(tl.int32)


@triton.jit
def _logit_in(word):
    """Return the first logit of a request, from its word; int32."""
    return ((word >> LOGIT_BITS) & LOGIT_MASK).to(tl.int32)


@triton.jit
def _starts(batch, batch_index, FEATURES: tl.constexpr):
    """Return the first token of requests, int32; behind the last one, the number of tokens.

    `batch_index` is a tensor of 0 to `num_reqs`.
    """
    if FEATURES.requests > 0:
        start = _start_in(_parameter(batch.words, batch_index, FEATURES.indexed))
    else:
        start = tl.load(batch.query_start_loc + batch_index)
    return start


@triton.jit
def _start(batch, batch_index, FEATURES: tl.constexpr):
    """Return the first token of a request, like `_starts`."""
    if FEATURES.requests > 0:
        index = tl.zeros([1], dtype=tl.int32) + batch_index
        start = tl.sum(_starts(batch, index, FEATURES), axis=0)
    else:
        start = tl.load(batch.query_start_loc + batch_index)
    return start


@triton.jit
def _is_left(batch, row, SIZES: tl.constexpr, FEATURES: tl.constexpr):
    """Return whether no request of the batch has a row, `[1]`."""
    found = tl.zeros([1], dtype=tl.int32)
    for base in range(0, batch.num_reqs, SIZES.searched):
        index = base + tl.arange(0, SIZES.searched)
        its_row = _mapped_rows(batch, index, FEATURES)
        found = tl.maximum(found, tl.max((its_row == row).to(tl.int32), axis=0))
    return found == 0


@triton.jit
def _write_several(descriptors, staged, batch, which, SIZES: tl.constexpr, FEATURES: tl.constexpr):
    """Copy the ids of one piece of an interval that has several, unless a gather does."""
    which = which + tl.zeros([1], dtype=tl.int32)
    index, piece = _piece(staged, which, FEATURES)
    interval = tl.sum(_interval(staged, index, which >= 0, FEATURES), axis=0)
    group = tl.sum(_group_of(staged, index, FEATURES), axis=0)
    row, start, place, length, _ = _unpack(interval, FEATURES)
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    width = tl.load(descriptor + WIDTH)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    target = source + row.to(tl.int64) * width + start
    offset = tl.sum(piece, axis=0) * PIECE_IDS + tl.arange(0, PIECE_IDS)
    mask = offset < length
    if FEATURES.where != CARRIED:
        mask &= _is_left(batch, row, SIZES, FEATURES)
    tl.store(target + offset, _staged_ids(staged, place + offset, mask, FEATURES), mask=mask)


@triton.jit
def _write_staged(descriptors, staging, record, BLOCK: tl.constexpr):
    """Copy one record's ids into the source table, and store the row's number of blocks."""
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
