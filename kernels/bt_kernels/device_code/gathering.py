"""The gathering of rows by programs of a one-launch step.

The last summand of an address is `nth`, whose range is constant. Instructions then encode it as
their offset, so it takes no instructions or registers of its own.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.bundles import CARRIED, MARKED, NOTHING
from bt_kernels.device_code.fields import BLOCK_SIZE, REACH
from bt_kernels.device_code.staged_rows import _first_id, _staged_ids


@triton.jit
def _first_columns(group, row, FEATURES: tl.constexpr):
    """Return the first column of rows `[TILE]` that the window reaches; 0 without a window."""
    first_column = tl.zeros_like(row)
    if FEATURES.options:
        reach = tl.load(group.descriptor + REACH)
        if (reach > 0) & group.windowed:
            computed = tl.load(group.num_computed_tokens + row, mask=row >= 0, other=0)
            first_column = tl.maximum(computed.to(tl.int64) - reach, 0)
            first_column = first_column // tl.load(group.descriptor + BLOCK_SIZE)
            first_column = tl.minimum(first_column, group.width).to(tl.int32)
    return first_column


@triton.jit
def _copy_fours(
    places, live, first_column, first, num_fours, WINDOWED: tl.constexpr, COLUMNS: tl.constexpr
):
    """Copy columns `[first, first + COLUMNS)` of rows `[TILE]`, up to each row's `num_fours`.

    `num_fours` counts units of four columns. `places` are the starts of the rows in source and
    target. Rows that are not `live` are zeroed.
    """
    source_row, target_row = places
    nth = tl.arange(0, COLUMNS)[None, :]
    mask = nth // 4 < (num_fours - first // 4)[:, None]
    ids = tl.load((source_row + first)[:, None] + nth, mask=mask & live[:, None], other=0)
    if WINDOWED:
        ids = tl.where(nth >= (first_column - first)[:, None], ids, 0)
    tl.store((target_row + first)[:, None] + nth, ids, mask=mask)


@triton.jit
def _copy_rest(
    staged,
    rows,
    places,
    first_column,
    begin,
    past_last,
    SIZES: tl.constexpr,
    FEATURES: tl.constexpr,
):
    """Copy columns `[begin, past_last)` of rows `[TILE]`, with the ids staged for them.

    If several ids of a row are in pinned memory, they are left to `_copy_several`.
    """
    source_row, target_row = places
    live = (rows.row >= 0)[:, None]
    several = rows.end - rows.start > 1
    if FEATURES.ids and FEATURES.where != CARRIED:
        past_last = tl.where(several, tl.minimum(past_last, rows.start), past_last)
    for done in range(0, tl.max(past_last - begin, axis=0), SIZES.rest):
        first = begin + done
        nth = tl.arange(0, SIZES.rest)[None, :]
        mask = nth < (past_last - first)[:, None]
        shown = mask & live & (nth >= (first_column - first)[:, None])
        source = (source_row + first)[:, None] + nth
        if FEATURES.where == NOTHING:
            copied = tl.load(source, mask=shown, other=0)
        else:
            fresh = (nth >= (rows.start - first)[:, None]) & (nth < (rows.end - first)[:, None])
            old = tl.load(source, mask=shown & (~fresh), other=0)
            new = rows.place[:, None]
            if FEATURES.ids and FEATURES.where == CARRIED:
                ids = (rows.place - rows.start + first)[:, None] + nth
                many = several[:, None]
                new = tl.where(many, _staged_ids(staged, ids, shown & fresh & many, FEATURES), new)
            copied = tl.where(shown & fresh, new, old)
        tl.store((target_row + first)[:, None] + nth, copied, mask=mask)


@triton.jit
def _copy_several(
    staged,
    rows,
    places,
    first_column,
    begin,
    past_last,
    SIZES: tl.constexpr,
    FEATURES: tl.constexpr,
):
    """Copy the ids in `[begin, past_last)` of rows `[TILE]` with several ids in pinned memory.

    One read takes as long as the rest of the program. So all reads are issued at once, which the
    compiler does only if the values read are stored unchanged.
    """
    if FEATURES.ids and FEATURES.where != CARRIED:
        source_row, target_row = places
        begin = tl.maximum(begin, rows.start)
        past_last = tl.where(rows.row >= 0, tl.minimum(past_last, rows.end), begin)
        past_last = tl.where(rows.end - rows.start > 1, past_last, begin)
        for done in range(0, tl.max(past_last - begin, axis=0), SIZES.fresh):
            first = begin + done
            nth = tl.arange(0, SIZES.fresh)[None, :]
            mask = nth < (past_last - first)[:, None]
            place = rows.place - rows.start + first
            ids = tl.load(_first_id(staged, place, FEATURES)[:, None] + nth, mask=mask)
            source = (source_row + first)[:, None] + nth
            target = (target_row + first)[:, None] + nth
            if FEATURES.where != MARKED:
                tl.store(source, ids, mask=mask)
            if FEATURES.options:
                shown = nth >= (first_column - first)[:, None]
                tl.store(target, ids, mask=mask & shown)
                tl.store(target, tl.zeros_like(ids), mask=mask & (~shown))
            else:
                tl.store(target, ids, mask=mask)


@triton.jit
def _gather_tile(
    group,
    staged,
    batch,
    cut,
    chunk,
    tile,
    rows,
    SHARES: tl.constexpr,
    TILE: tl.constexpr,
    SIZES: tl.constexpr,
    FEATURES: tl.constexpr,
):
    """Gather the rows of a tile, or with `SHARES` one chunk of them.

    The last `num_wide` rows leave their columns from `OWN_COLUMNS` on to `num_chunks` programs,
    each of which takes every `num_chunks`-th piece of `WIDE_COLUMNS`. Staged ids are always at the
    end of a row, so the columns before them are copied in fours, without a look at each.
    """
    batch_index = tile * TILE + tl.arange(0, TILE)
    live = rows.row >= 0
    # A dummy request, and a row past the batch, is zeroed whole.
    length = tl.where(live, rows.length, group.width)
    length = tl.where(batch_index < batch.num_rows, length, 0)
    first_column = _first_columns(group, rows.row, FEATURES)
    source_row = group.source + rows.row.to(tl.int64) * group.width
    target_row = group.target + batch_index.to(tl.int64) * group.width
    places = (source_row, target_row)
    wide = places
    if FEATURES.aligned:
        # Four columns are then one access of 16 bytes. This is said of other values than those for
        # columns one by one, of which each thread would have four in a row: every access would be
        # of each fourth column, and pinned memory would be read four times.
        wide_source = group.source + rows.row.to(tl.int64) * group.width
        wide_target = group.target + batch_index.to(tl.int64) * group.width
        wide = (tl.multiple_of(wide_source, [16]), tl.multiple_of(wide_target, [16]))
    num_fours = length // 4
    if FEATURES.where != NOTHING:
        num_fours = tl.where(rows.staged, tl.minimum(rows.start, length), length) // 4
    if SHARES:
        apart = cut.num_chunks * SIZES.wide_columns
        begin = SIZES.own_columns + chunk * SIZES.wide_columns
        for first in range(begin, tl.max(length, axis=0), apart):
            _copy_fours(
                wide, live, first_column, first, num_fours, FEATURES.options, SIZES.wide_columns
            )
            begin_rest = tl.maximum(num_fours * 4, first)
            past_last = tl.minimum(length, first + SIZES.wide_columns)
            _copy_rest(staged, rows, places, first_column, begin_rest, past_last, SIZES, FEATURES)
            _copy_several(staged, rows, places, first_column, first, past_last, SIZES, FEATURES)
    else:
        shared = (cut.num_chunks > 0) & (batch_index >= batch.num_rows - cut.num_wide)
        own = tl.where(shared, tl.minimum(length, SIZES.own_columns), length)
        own_fours = tl.minimum(num_fours, own // 4)
        for first in range(0, tl.max(own_fours, axis=0) * 4, SIZES.columns):
            _copy_fours(wide, live, first_column, first, own_fours, FEATURES.options, SIZES.columns)
        _copy_rest(staged, rows, places, first_column, own_fours * 4, own, SIZES, FEATURES)
        _copy_several(staged, rows, places, first_column, 0, own, SIZES, FEATURES)
