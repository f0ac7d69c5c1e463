"""The parts of a step in one launch; `one_launch_kernels` says how they work together."""

from __future__ import annotations

import triton
import triton.language as tl

from bt_kernels.device_code.fields import (
    BLOCK_SHIFT,
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
            mov.b64 place, one_launch_carrying_kernel_param_11;
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
    """Row, first column, value, length and whether the ids are apart, of words.

    The value is the block id of an interval of one, else where its ids are among those carried.
    """
    place = (words >> 32).to(tl.int32)
    value = words.to(tl.int32)
    apart = words < 0
    length = tl.where(apart, (value >> 16) & 0xFFFF, 1)
    value = tl.where(apart, value & 0xFFFF, value)
    return (place >> 15) & 0x7FFF, place & 0x7FFF, value, length, apart


@triton.jit
def _staged_ids(
    staging,
    ids,
    places,
    mask,
    IN_PARAMETERS: tl.constexpr,
    FIRST: tl.constexpr,
    IDS: tl.constexpr,
    INDEXED: tl.constexpr,
):
    """Ids of intervals that have several, at places in pinned memory or among those carried.

    The parameters of ids begin `FIRST` bytes after those of writes, and are `IDS` words of two ids.
    """
    if not IN_PARAMETERS:
        found = tl.load(staging + places, mask=mask, other=0)
    elif INDEXED:
        found = tl.inline_asm_elementwise(
            """{
            .reg .b64 place;
            mov.b64 place, one_launch_carrying_kernel_param_11;
            add.s64 place, place, $1;
            ld.param.b32 $0, [place];
            }""",
            "=r,l",
            [tl.where(mask, places, 0).to(tl.int64) * 4 + FIRST],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    else:
        found = tl.zeros_like(places)
        for index in tl.static_range(IDS):
            found = tl.where(places == 2 * index, ids[index].to(tl.int32), found)
            found = tl.where(places == 2 * index + 1, (ids[index] >> 32).to(tl.int32), found)
    return found


@triton.jit
def _write_carried(descriptors, words, group):
    """Counts what a launch carries for one group, and writes its single ids to the table."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    width = tl.load(descriptor + WIDTH)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    row, column, block_id, length, apart = _unpack(words)
    written = row != NO_ROW
    tl.store(num_blocks + row, column + length, mask=written)
    tl.store(source + row.to(tl.int64) * width + column, block_id, mask=written & (~apart))


@triton.jit
def _write_apart(
    descriptors,
    words,
    ids,
    group,
    which,
    FIRST: tl.constexpr,
    IDS: tl.constexpr,
    INDEXED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copies the ids of one interval that has several into the source table."""
    descriptor = descriptors + group * DESCRIPTOR_FIELDS
    width = tl.load(descriptor + WIDTH)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    apart = (words < 0).to(tl.int32)
    wanted = (apart > 0) & (tl.cumsum(apart, axis=0) == which + 1)
    row, start, place, length, _ = _unpack(tl.sum(tl.where(wanted, words, 0), axis=0))
    length = tl.where(tl.sum(wanted.to(tl.int32), axis=0) > 0, length, 0)
    for first in range(0, length, BLOCK):
        offset = first + tl.arange(0, BLOCK)
        mask = offset < length
        found = _staged_ids(None, ids, place + offset, mask, True, FIRST, IDS, INDEXED)
        tl.store(source + row.to(tl.int64) * width + start + offset, found, mask=mask)


@triton.jit
def _find_carried(row, words):
    """Start, end and value that a launch carries for rows `[TILE]`; start and end 0 if none."""
    of_row, _, _, _, _ = _unpack(words)
    # A row below 0 matches no word, since rows in words have 15 bits. At most one word matches.
    found = row[:, None] == of_row[None, :]
    word = tl.sum(tl.where(found, words[None, :], 0), axis=1)
    _, column, value, length, _ = _unpack(word)
    return column, tl.where(word == 0, 0, column + length), value


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
def _rows_of_tile(
    staging,
    idx_mapping,
    index_step,
    max_num_reqs,
    num_reqs,
    step,
    group,
    tile,
    words,
    SLOTS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Rows of a tile's requests, -1 for dummies and past the batch, and what is staged for them.

    Returns rows, starts, ends, places and whether something is staged, `[TILE]` each.
    """
    batch_index = tile * TILE + tl.arange(0, TILE)
    row = tl.load(idx_mapping + batch_index * index_step, mask=batch_index < num_reqs, other=-1).to(
        tl.int32
    )
    if SLOTS > 0:
        start, end, place = _find_carried(row, words)
        staged = end > 0
    else:
        start, end, place, staged = _find_marked(row, staging, group, max_num_reqs, step)
    return row, start, end, place, staged


@triton.jit
def _first_columns(descriptor, num_computed_tokens, windowed, row, width):
    """The first column of rows `[TILE]` that the window reaches; 0 without a window."""
    first_column = tl.zeros_like(row)
    if num_computed_tokens is not None:
        reach = tl.load(descriptor + REACH)
        if (reach > 0) & windowed:
            computed = tl.load(num_computed_tokens + row, mask=row >= 0, other=0).to(tl.int64)
            first_column = tl.maximum(computed - reach, 0) // tl.load(descriptor + BLOCK_SIZE)
            first_column = tl.minimum(first_column, width).to(tl.int32)
    return first_column


@triton.jit
def _copy_fours(
    source_row,
    target_row,
    live,
    first_column,
    first,
    num_fours,
    WINDOWED: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Copies columns `[first, first + COLUMNS)` of rows `[TILE]`, of each its first `num_fours`.

    These are four columns each. Rows that are not `live` are zeroed.
    """
    column = (first + tl.arange(0, COLUMNS))[None, :]
    mask = column // 4 < num_fours[:, None]
    ids = tl.load(source_row[:, None] + column, mask=mask & live[:, None], other=0)
    if WINDOWED:
        ids = tl.where(column >= first_column[:, None], ids, 0)
    tl.store(target_row[:, None] + column, ids, mask=mask)


@triton.jit
def _copy_rest(
    staging,
    source_row,
    target_row,
    live,
    start,
    end,
    place,
    first_column,
    begin,
    past_last,
    ids,
    SLOTS: tl.constexpr,
    FIRST: tl.constexpr,
    IDS: tl.constexpr,
    INDEXED: tl.constexpr,
    REST: tl.constexpr,
):
    """Copies columns `[begin, past_last)` of rows `[TILE]`, with what is staged for them."""
    many = (end - start > 1)[:, None]
    for done in range(0, tl.max(past_last - begin, axis=0), REST):
        column = (begin + done)[:, None] + tl.arange(0, REST)[None, :]
        mask = column < past_last[:, None]
        fresh = (column >= start[:, None]) & (column < end[:, None])
        shown = mask & live[:, None] & (column >= first_column[:, None])
        old = tl.load(source_row[:, None] + column, mask=shown & (~fresh), other=0)
        new = place[:, None]
        if SLOTS == 0 or IDS > 0:
            places = (place - start)[:, None] + column
            more = _staged_ids(
                staging, ids, places, shown & fresh & many, SLOTS > 0, FIRST, IDS, INDEXED
            )
            new = tl.where(many, more, new)
        copied = tl.where(shown & fresh, new, old)
        tl.store(target_row[:, None] + column, copied, mask=mask)


@triton.jit
def _gather_tile(
    descriptor,
    staging,
    num_computed_tokens,
    windowed,
    target,
    num_rows,
    num_wide,
    num_chunks,
    chunk,
    tile,
    source,
    width,
    row,
    start,
    end,
    place,
    staged,
    ids,
    SLOTS: tl.constexpr,
    FIRST: tl.constexpr,
    IDS: tl.constexpr,
    INDEXED: tl.constexpr,
    SHARES: tl.constexpr,
    TILE: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE_COLUMNS: tl.constexpr,
    OWN_COLUMNS: tl.constexpr,
    REST: tl.constexpr,
):
    """Gathers the rows of a tile, or with `SHARES` one chunk of them.

    The last `num_wide` rows leave their columns from `OWN_COLUMNS` on to `num_chunks` programs,
    each of which takes every `num_chunks`-th piece of `WIDE_COLUMNS`. What is staged is always the
    end of a row, so the columns before it are copied in fours, without a look at each.
    """
    num_blocks = tl.load(descriptor + NUM_BLOCKS).to(tl.pointer_type(tl.int32))
    batch_index = tile * TILE + tl.arange(0, TILE)
    live = row >= 0
    # A dummy request, and a row past the batch, is zeroed whole.
    owned = tl.load(num_blocks + row, mask=live & (~staged), other=0)
    length = tl.where(staged, end, owned)
    length = tl.where(live, length, width)
    length = tl.where(batch_index < num_rows, length, 0)
    first_column = _first_columns(descriptor, num_computed_tokens, windowed, row, width)
    source_row = source + row.to(tl.int64) * width
    target_row = target + batch_index.to(tl.int64) * width
    num_fours = tl.where(staged, tl.minimum(start, length), length) // 4
    if SHARES:
        apart = num_chunks * WIDE_COLUMNS
        for first in range(OWN_COLUMNS + chunk * WIDE_COLUMNS, tl.max(length, axis=0), apart):
            past_last = first + WIDE_COLUMNS
            _copy_fours(
                source_row,
                target_row,
                live,
                first_column,
                first,
                num_fours,
                num_computed_tokens is not None,
                WIDE_COLUMNS,
            )
            _copy_rest(
                staging,
                source_row,
                target_row,
                live,
                start,
                end,
                place,
                first_column,
                tl.maximum(num_fours * 4, first),
                tl.minimum(length, past_last),
                ids,
                SLOTS,
                FIRST,
                IDS,
                INDEXED,
                REST,
            )
    else:
        shared = (num_chunks > 0) & (batch_index >= num_rows - num_wide)
        own = tl.where(shared, tl.minimum(length, OWN_COLUMNS), length)
        own_fours = tl.minimum(num_fours, own // 4)
        for first in range(0, tl.max(own_fours, axis=0) * 4, COLUMNS):
            _copy_fours(
                source_row,
                target_row,
                live,
                first_column,
                first,
                own_fours,
                num_computed_tokens is not None,
                COLUMNS,
            )
        _copy_rest(
            staging,
            source_row,
            target_row,
            live,
            start,
            end,
            place,
            first_column,
            own_fours * 4,
            own,
            ids,
            SLOTS,
            FIRST,
            IDS,
            INDEXED,
            REST,
        )


@triton.jit
def _map_tokens(
    descriptor,
    staging,
    query_start_loc,
    positions,
    slots,
    num_reqs,
    tile,
    first,
    past_last,
    source,
    width,
    row,
    start,
    end,
    place,
    ids,
    SLOTS: tl.constexpr,
    FIRST: tl.constexpr,
    IDS: tl.constexpr,
    INDEXED: tl.constexpr,
    SHARDED: tl.constexpr,
    PAD: tl.constexpr,
    TILE: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Slots of tokens `[first, first + TOKENS)` of a tile's requests, those before `past_last`."""
    token = first + tl.arange(0, TOKENS)
    mask = token < past_last
    position = tl.load(positions + token, mask=mask, other=0)
    block_size = tl.load(descriptor + BLOCK_SIZE)
    capacity = tl.load(descriptor + CAPACITY)
    batch_index = tile * TILE + tl.arange(0, TILE)
    past = tl.load(query_start_loc + batch_index + 1, mask=batch_index < num_reqs, other=2147483647)
    which = tl.sum((token[None, :] >= past[:, None]).to(tl.int32), axis=0)
    chosen = tl.arange(0, TILE)[:, None] == which[None, :]
    its_row = _spread(row, chosen)
    its_start = _spread(start, chosen)
    its_end = _spread(end, chosen)
    its_place = _spread(place, chosen)
    inside = (position >= 0) & (position < capacity) & (its_row >= 0)
    # Division truncates on a device and floors in the interpreter: keep it off negatives.
    position = tl.where(inside, position, 0)
    if SHARDED:
        position, mine = _local_position(descriptor, position, block_size)
        inside &= mine
    shift = tl.load(descriptor + BLOCK_SHIFT)
    if shift >= 0:  # a division of int64 takes a hundred instructions
        column = (position >> shift).to(tl.int32)
        offset = position & (block_size - 1)
    else:
        column = (position // block_size).to(tl.int32)
        offset = position % block_size
    fresh = (column >= its_start) & (column < its_end)
    old = tl.load(
        source + its_row.to(tl.int64) * width + column,
        mask=mask & inside & (~fresh),
        other=0,
    )
    new = its_place
    if SLOTS == 0 or IDS > 0:
        its_many = its_end - its_start > 1
        more = _staged_ids(
            staging,
            ids,
            its_place + column - its_start,
            mask & inside & fresh & its_many,
            SLOTS > 0,
            FIRST,
            IDS,
            INDEXED,
        )
        new = tl.where(its_many, more, new)
    block_id = tl.where(fresh, new, old)
    slot = block_id.to(tl.int64) * block_size + offset
    tl.store(slots + token, tl.where(inside, slot, PAD), mask=mask)


@triton.jit
def _find_span(
    query_start_loc,
    num_reqs,
    span,
    TILE: tl.constexpr,
    TOKENS: tl.constexpr,
    SPAN: tl.constexpr,
    SEARCHED: tl.constexpr,
):
    """Where a span of tokens is: its tile, its first token, and the end of the tile's tokens.

    The tokens of a tile after its first `TOKENS` are cut into spans of `SPAN`, which are numbered
    through all tiles. The end is 0 if there are fewer spans.
    """
    num_tiles = (num_reqs + TILE - 1) // TILE
    before = 0
    tile, first, past_last = 0, 0, 0
    base = 0
    while (base < num_tiles) & (past_last == 0):
        tiles = base + tl.arange(0, SEARCHED)
        begin = tl.load(query_start_loc + tl.minimum(tiles * TILE, num_reqs))
        end = tl.load(query_start_loc + tl.minimum(tiles * TILE + TILE, num_reqs))
        spans = (tl.maximum(end - begin - TOKENS, 0) + SPAN - 1) // SPAN
        until = before + tl.cumsum(spans, axis=0)
        here = (span < until) & (span >= until - spans)  # one at most
        place = begin + TOKENS + (span - until + spans) * SPAN
        tile = tl.sum(tl.where(here, tiles, 0), axis=0)
        first = tl.sum(tl.where(here, place, 0), axis=0)
        past_last = tl.sum(tl.where(here, end, 0), axis=0)
        before += tl.sum(spans, axis=0)
        base += SEARCHED
    return tile, first, past_last


@triton.jit
def _of_group(
    descriptor,
    staging,
    idx_mapping,
    index_step,
    query_start_loc,
    positions,
    num_computed_tokens,
    windowed,
    target,
    slots,
    num_slots,
    max_num_reqs,
    num_reqs,
    num_rows,
    step,
    num_spans,
    num_wide,
    num_chunks,
    num_pads,
    group,
    part,
    words,
    ids,
    SLOTS: tl.constexpr,
    FIRST: tl.constexpr,
    IDS: tl.constexpr,
    INDEXED: tl.constexpr,
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
    """One of the parts of a group: spans of tokens, tiles, pieces of wide rows, padding.

    A tile gathers its rows and maps the first `TOKENS` of its tokens. So all parts take about as
    long, however columns and tokens are spread over requests.
    """
    num_tiles = (num_rows + TILE - 1) // TILE
    width = tl.load(descriptor + WIDTH).to(tl.int32)
    source = tl.load(descriptor + SOURCE).to(tl.pointer_type(tl.int32))
    if part < num_spans:
        span = part
        while span >= 0:
            tile, first, past_last = _find_span(
                query_start_loc, num_reqs, span, TILE, TOKENS, SPAN, SEARCHED
            )
            span = tl.where(past_last > 0, span + num_spans, -1)
            if past_last > 0:
                row, start, end, place, staged = _rows_of_tile(
                    staging,
                    idx_mapping,
                    index_step,
                    max_num_reqs,
                    num_reqs,
                    step,
                    group,
                    tile,
                    words,
                    SLOTS,
                    TILE,
                )
                _map_tokens(
                    descriptor,
                    staging,
                    query_start_loc,
                    positions,
                    slots,
                    num_reqs,
                    tile,
                    first,
                    past_last,
                    source,
                    width,
                    row,
                    start,
                    end,
                    place,
                    ids,
                    SLOTS,
                    FIRST,
                    IDS,
                    INDEXED,
                    SHARDED,
                    PAD,
                    TILE,
                    SPAN,
                )
    elif part < num_spans + num_tiles:
        tile = part - num_spans
        row, start, end, place, staged = _rows_of_tile(
            staging,
            idx_mapping,
            index_step,
            max_num_reqs,
            num_reqs,
            step,
            group,
            tile,
            words,
            SLOTS,
            TILE,
        )
        _gather_tile(
            descriptor,
            staging,
            num_computed_tokens,
            windowed,
            target,
            num_rows,
            num_wide,
            num_chunks,
            0,
            tile,
            source,
            width,
            row,
            start,
            end,
            place,
            staged,
            ids,
            SLOTS,
            FIRST,
            IDS,
            INDEXED,
            False,
            TILE,
            COLUMNS,
            WIDE_COLUMNS,
            OWN_COLUMNS,
            REST,
        )
        first = tl.load(query_start_loc + tl.minimum(tile * TILE, num_reqs))
        past_last = tl.load(query_start_loc + tl.minimum(tile * TILE + TILE, num_reqs))
        _map_tokens(
            descriptor,
            staging,
            query_start_loc,
            positions,
            slots,
            num_reqs,
            tile,
            first,
            past_last,
            source,
            width,
            row,
            start,
            end,
            place,
            ids,
            SLOTS,
            FIRST,
            IDS,
            INDEXED,
            SHARDED,
            PAD,
            TILE,
            TOKENS,
        )
    elif part < num_spans + num_tiles + num_wide * num_chunks:
        piece = part - num_spans - num_tiles
        batch_index = num_rows - num_wide + piece // num_chunks
        row, start, end, place, staged = _rows_of_tile(
            staging,
            idx_mapping,
            index_step,
            max_num_reqs,
            num_reqs,
            step,
            group,
            batch_index,
            words,
            SLOTS,
            1,
        )
        _gather_tile(
            descriptor,
            staging,
            num_computed_tokens,
            windowed,
            target,
            num_rows,
            num_wide,
            num_chunks,
            piece % num_chunks,
            batch_index,
            source,
            width,
            row,
            start,
            end,
            place,
            staged,
            ids,
            SLOTS,
            FIRST,
            IDS,
            INDEXED,
            True,
            1,
            COLUMNS,
            WIDE_COLUMNS,
            OWN_COLUMNS,
            REST,
        )
    else:
        pad = part - num_spans - num_tiles - num_wide * num_chunks
        _pad(slots, num_slots, query_start_loc, num_reqs, pad, num_pads, PAD, BLOCK)


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
    num_spans,
    num_wide,
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
    WIDE_COLUMNS: tl.constexpr,
    OWN_COLUMNS: tl.constexpr,
    REST: tl.constexpr,
    TOKENS: tl.constexpr,
    SPAN: tl.constexpr,
    SEARCHED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One of the parts that a step is cut into: records, and then the parts of each group."""
    if part < num_records:
        _write_staged(descriptors, staging, records + part * STEP_RECORD_FIELDS, BLOCK)
    else:
        part -= num_records
        num_tiles = (num_rows + TILE - 1) // TILE
        in_group = num_spans + num_tiles + num_wide * num_chunks + num_pads
        group = (part // in_group).to(tl.int64)
        descriptor = descriptors + group * DESCRIPTOR_FIELDS
        num_slots = tl.load(descriptor + MAX_NUM_TOKENS) if out is None else out_size
        _of_group(
            descriptor,
            staging,
            idx_mapping,
            index_step,
            query_start_loc,
            positions,
            num_computed_tokens,
            windowed,
            _target(descriptor, out_ptrs, group * out_ptrs_step),
            _slots(descriptor, out, out_stride, group),
            num_slots,
            max_num_reqs,
            num_reqs,
            num_rows,
            step,
            num_spans,
            num_wide,
            num_chunks,
            num_pads,
            group,
            part % in_group,
            None,
            None,
            0,
            0,
            0,
            False,
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
