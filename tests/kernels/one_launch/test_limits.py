"""Counters and packed fields hold the most that a step can have, and steps are right there.

Fields are of the words that a launch carries, of headers, and of sums of two counts. Each test says
which legal step fills its field most.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support import cuts
from support.quick_triton import Pointer, QuickKernels, value
from support.variants import variant_of

from bt_kernels import one_launch
from bt_kernels.device_code import ALIGNED_IDS
from bt_kernels.layout import INT32_MAX, MAX_NUM_REQS, TableLayout
from bt_kernels.one_launch import carrying, shapes
from bt_kernels.staging import BITMAP_ROWS, MOST_WORDS, PIECE_IDS, bitmap_words

KERNELS = QuickKernels()
IN_MEMORY = SimpleNamespace(requests=0)  # where the starts of requests are


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    with cuts.sizes(monkeypatch, cuts.gpu_sizes()):
        yield


def tables_of(layout, *, native):
    return variant_of("one_launch", native)(layout, "cpu")


# Requests around a span: two counts in one sum of int32, 16 bits each


def requests_in(num_reqs, starts, first, *, tile):
    """What the function of the kernels says, and the request that it finds for `first`."""
    starts = torch.tensor(starts, dtype=torch.int32)
    pointer = Pointer(value(starts.data_ptr(), np.int64), np.int32)
    batch = SimpleNamespace(num_reqs=value(num_reqs, np.int32), query_start_loc=pointer)
    sizes = SimpleNamespace(searched=shapes.SEARCHED, span=shapes.SPAN, tile=tile)
    first = value(first, np.int32)
    ended, begun, farthest = KERNELS.function("mapping", "_requests_in")(batch, first, sizes)
    token = first + KERNELS.language.arange(0, 1)
    request = KERNELS.function("mapping", "_request_of")(batch, token, ended, begun, IN_MEMORY)
    return int(ended), int(begun), int(farthest), int(request[0])


@pytest.mark.parametrize("tile", [1, 2])
def test_all_requests_end_before_a_span_or_begin_in_it(tile):
    last = MAX_NUM_REQS - 1
    of_the_last = [0] * MAX_NUM_REQS + [500]
    assert requests_in(MAX_NUM_REQS, of_the_last, 128, tile=tile) == (last, last + 1, 500, last)
    of_the_first = [0] + [500] * MAX_NUM_REQS
    ended, begun, farthest, request = requests_in(MAX_NUM_REQS, of_the_first, 128, tile=tile)
    assert (ended, begun, farthest, request) == (0, 1, 500, 0)
    one_each = list(range(MAX_NUM_REQS + 1))
    first = MAX_NUM_REQS // 128 * 128
    found = requests_in(MAX_NUM_REQS, one_each, first, tile=tile)
    assert found == (first, MAX_NUM_REQS, tile, first)


def test_one_request_more_than_a_layout_has_would_not_be_counted():
    """So it is the layout's limit that keeps the sum right."""
    with pytest.raises(ValueError, match="max_num_reqs is 32768; expected 32767 or less"):
        TableLayout((1,), (1,), MAX_NUM_REQS + 1, 1)
    _, begun, _, _ = requests_in(MAX_NUM_REQS + 1, [0] * (MAX_NUM_REQS + 1) + [500], 128, tile=1)
    assert begun < 0


def test_a_grid_has_room_for_all_programs_of_a_row():
    """Gather and slots in one launch have two each, and one that pads, on an axis of 16 bits."""
    assert 2 * MAX_NUM_REQS + 1 == 2**16 - 1


# Intervals that a launch carries: 16 bits for those before, 15 for a row, 16 for an index


def most_intervals():
    """Return groups and rows of a layout whose steps have the most, and how many."""
    found = []
    for groups in range(1, shapes.MAX_BITMAP // 2):
        words = shapes.MAX_BITMAP // groups - 1
        rows = min(words * BITMAP_ROWS, MAX_NUM_REQS)
        found.append((groups * rows, groups, rows))
    return max(found)


def test_a_bitmap_has_fewer_intervals_than_it_can_count():
    most, groups, rows = most_intervals()
    assert (most, groups, rows) == (36_768, 2, 18_384)
    assert 2**15 < most <= MOST_WORDS  # so that the highest bit of a word is set
    assert groups * (bitmap_words(rows) + 1) <= shapes.MAX_BITMAP


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("groups", "rows"), [(2, 18_384), (1, MAX_NUM_REQS)], ids=["most intervals", "most rows"]
)
def test_every_row_has_an_interval(groups, rows, native, monkeypatch):
    layout = TableLayout((4,) * groups, (3,) * groups, rows, 8)
    tables = tables_of(layout, native=native)
    assert carrying.CarryingLaunch.is_possible(tables)
    ids = [[[10 * row + group + 1] for group in range(groups)] for row in range(rows)]
    for row in (0, rows - 1):  # of several, which have pieces
        ids[row] = [[one, one + 5, -one] for (one,) in ids[row]]
    tables.append_many(list(range(rows)), ids, [False] * rows)
    batch = [rows - 1, 0, rows - 2, rows // 2]
    with cuts.noted_launches(monkeypatch, run=KERNELS) as noted:
        tables.prepare_step(
            torch.tensor(batch),
            torch.tensor([0, 3, 5, 6, 7], dtype=torch.int32),
            torch.tensor([0, 4, 8, 0, 11, 2, 3]),
            *(4, 8),
        )
    assert [launch.num_words for launch in noted] == [groups * rows]
    for group, table in enumerate(tables.block_tables):
        assert table[:, 0].tolist() == [own[group][0] for own in ids]
        for index, row in enumerate(batch):
            own = ids[row][group]
            assert table[row, : len(own)].tolist() == own
            gathered = tables.input_block_tables[group][index, : len(own)].tolist()
            assert gathered == own
        last, first, second, middle = (ids[row][group] for row in batch)
        blocks = [*last, first[0], first[2], second[0], middle[0]]
        offsets = [0, 0, 0, 0, 3, 2, 3]
        wanted = [4 * block + offset for block, offset in zip(blocks, offsets, strict=True)]
        assert tables.slot_mappings[group].tolist() == [*wanted, -1]
    counts = tables.num_blocks_on_device
    assert torch.equal(counts, torch.from_numpy(tables.num_blocks))


# Columns, lengths and places of ids: 16 bits each


def made(tables, rows, positions, monkeypatch):
    """Make a step of one token for each row; return the kernels' launches."""
    num_reqs = len(rows)
    with cuts.noted_launches(monkeypatch, run=KERNELS) as noted:
        tables.prepare_step(
            torch.tensor(rows),
            torch.arange(num_reqs + 1, dtype=torch.int32),
            torch.tensor(positions),
            *(num_reqs, num_reqs),
        )
    return noted


def hold_rows(tables, wanted):
    """Hold what rows have and how many, in the tables and the first rows that were gathered."""
    for index, (row, ids) in enumerate(wanted.items()):
        ids = torch.tensor(ids, dtype=torch.int32)
        assert tables.num_blocks_on_device[0, row] == len(ids)
        assert torch.equal(tables.block_tables[0][row, : len(ids)], ids), row
        assert torch.equal(tables.input_block_tables[0][index, : len(ids)], ids), row


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("beyond", [0, 1], ids=["at the limit", "beyond it"])
def test_an_interval_begins_at_the_last_column_that_a_word_tells(beyond, native, monkeypatch):
    """One column further on, the step is made from pinned memory."""
    start = MOST_WORDS + beyond
    layout = TableLayout((1,), (start + 2,), 4, 8)
    tables = tables_of(layout, native=native)
    for row in (0, 2):
        tables.append_block_ids(row, [[7] * start], True)
    tables.apply_staged_writes()
    tables.append_block_ids(0, [[-8]], False)
    tables.append_block_ids(2, [[9, -10]], False)
    (launch,) = made(tables, [2, 0], [start + 1, start], monkeypatch)
    assert (launch.programs == 0) is (not beyond)
    hold_rows(tables, {2: [7] * start + [9, -10], 0: [7] * start + [-8]})
    assert tables.slot_mappings[0, :2].tolist() == [-10, -8]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("beyond", [0, 1], ids=["at the limit", "beyond it"])
def test_an_interval_has_the_most_ids_that_a_word_tells(beyond, native, monkeypatch):
    length = MOST_WORDS + beyond
    tables = tables_of(TableLayout((1,), (length,), 2, 8), native=native)
    ids = list(range(1, length + 1))
    tables.append_block_ids(1, [ids], True)
    (launch,) = made(tables, [1], [length - 1], monkeypatch)
    assert (launch.programs == 0) is (not beyond)
    hold_rows(tables, {1: ids})
    assert tables.slot_mappings[0, 0] == length


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("beyond", [0, 1], ids=["at the limit", "beyond it"])
def test_ids_are_as_far_as_a_word_tells(beyond, native, monkeypatch):
    """Places are counted in fours, and the last one is the highest that there is."""
    long = (MOST_WORDS // 4) * ALIGNED_IDS.value
    few = MOST_WORDS - 4 * (long // ALIGNED_IDS.value) + beyond
    tables = tables_of(TableLayout((1,), (long,), 4 + few, 8), native=native)
    wanted = {row: [row + 1, *[row + 11] * (long - 2), row + 2] for row in range(4)}
    wanted |= {row: [100 * row, 100 * row + 1] for row in range(4, 4 + few)}
    for row, ids in wanted.items():
        tables.append_block_ids(row, [ids], True)
    last = 3 + few
    shown = {last: wanted[last], 3: wanted[3], last - 1: wanted[last - 1]}
    (launch,) = made(tables, list(shown), [1, long - 1, 0], monkeypatch)
    assert (launch.programs == 0) is (not beyond)
    hold_rows(tables, shown)
    for row, ids in wanted.items():
        assert tables.block_tables[0][row, : len(ids)].tolist() == ids
    assert tables.slot_mappings[0, :3].tolist() == [100 * last + 1, 5, 100 * (last - 1)]


def test_pieces_are_counted_in_sixteen_bits():
    """The most of an interval, of which a word tells the number, and the index beside it."""
    most_pieces = -(-MOST_WORDS // PIECE_IDS)
    assert most_pieces == 128
    index, _, _ = most_intervals()
    assert (most_pieces - 1) << 16 | index <= INT32_MAX


# Headers of launches that never change


def test_a_header_tells_the_most_of_all(monkeypatch):
    """Sixteen bits of rows, eight of chunks and pads, 31 of steps and records; none is negative."""
    rows = torch.zeros(MAX_NUM_REQS, dtype=torch.int64)
    starts = torch.zeros(MAX_NUM_REQS + 1, dtype=torch.int32)
    positions = torch.zeros(1, dtype=torch.int64)
    tables = tables_of(TableLayout((1,), (1,), MAX_NUM_REQS, 20_000), native=False)
    fixed = tables._make_captured_writes()._fixed
    monkeypatch.setattr(fixed, "_num_chunks", lambda _rows, _longest: shapes.MAX_CHUNKS)
    view = memoryview(torch.zeros(fixed.body, dtype=torch.int32).numpy())
    batch = one_launch.Batch(rows, starts, positions, MAX_NUM_REQS, MAX_NUM_REQS)
    words = fixed.write(view, tables, INT32_MAX - 1, INT32_MAX, batch, 1, one_launch.Options())
    assert min(words) >= 0
    read = np.frombuffer(view, np.int64, 4)
    first, second, third, last = (value(word, np.int64) for word in read)
    upper = KERNELS.function("one_launch_kernels", "_upper")
    lower = KERNELS.function("one_launch_kernels", "_lower")
    assert upper(first) == upper(second) == MAX_NUM_REQS
    assert (upper(third) >> 8, upper(third) & 0xFF) == (shapes.MAX_CHUNKS, shapes.MAX_PADS)
    assert lower(first) == rows.data_ptr()
    assert lower(second) == starts.data_ptr()
    assert lower(third) == positions.data_ptr()
    assert (last >> 32).to(np.int32) == INT32_MAX - 1
    assert ((last >> 1) & 0x7FFFFFFF).to(np.int32) == INT32_MAX
    assert last & 1 == 1


@pytest.mark.parametrize("way", ["pinned", "captured"])
def test_more_steps_than_int32_counts_are_refused_each_time(way, monkeypatch):
    """What is staged stays so, and is applied by what has no number of steps."""
    tables = tables_of(TableLayout((1,), (4,), 2, 8), native=False)
    batch = torch.tensor([1]), torch.tensor([0, 1], dtype=torch.int32), torch.tensor([0])
    with cuts.noted_launches(monkeypatch, run=KERNELS):
        step = tables.capture_step(*batch, 1, 1)
        tables._carrying = None
        make = step.publish if way == "captured" else lambda: tables.prepare_step(*batch, 1, 1)
        make()
        writes = (tables._captured_writes if way == "captured" else tables._pinned)._writes
        writes.step = INT32_MAX - 2
        tables.append_block_ids(1, [[5]], False)
        make()
        assert writes.step == INT32_MAX - 1
        tables.append_block_ids(1, [[6]], False)
        for _ in range(3):
            with pytest.raises(OverflowError, match="2,147,483,646 steps were prepared"):
                make()
        assert writes.step == INT32_MAX - 1
        assert tables._staged
        tables.apply_staged_writes()
    assert tables.block_tables[0][1].tolist() == [5, 6, 0, 0]
