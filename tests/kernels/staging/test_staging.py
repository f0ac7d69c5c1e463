"""Staged writes: what is staged and refused, how it is packed; in Python and in C alike."""

from __future__ import annotations

import random
from array import array

import numpy as np
import pytest
from support.requests import Number, request_for

from bt_kernels.layout import INT32_MAX, INT32_MIN, TableLayout
from bt_kernels.native import why_not
from bt_kernels.staging import (
    MARK_FIELDS,
    MOST_WORDS,
    PIECE_IDS,
    RECORD_FIELDS,
    STEP_RECORD_FIELDS,
    StagedWrites,
    bitmap_words,
    refuse_append,
    refuse_append_many,
    staged_writes,
)

MAX_NUM_REQS = 6


def in_c():
    reason = why_not("staged")
    if reason is not None:
        pytest.skip(reason)
    return staged_writes(native=True)


@pytest.fixture(params=["Python", "C"])
def kind(request):
    return StagedWrites if request.param == "Python" else in_c()


def make(kind, *widths):
    """Staged writes of tables so wide, and the number of blocks of their rows."""
    num_blocks = np.zeros((len(widths), MAX_NUM_REQS), dtype=np.int32)
    return kind(widths, num_blocks), num_blocks


class Unsure:
    def __bool__(self):
        raise TypeError("perhaps")


# What is staged


def test_appends_extend_an_interval_and_an_overwrite_replaces_it(kind):
    staged, num_blocks = make(kind, 9)
    num_blocks[0, 4] = 2
    assert staged.append(4, [[7]], False, False)
    assert staged.append(4, [[8, 9]], False, False)
    assert staged.intervals() == [(0, 4, 2, [7, 8, 9])]
    assert num_blocks[0].tolist() == [0, 0, 0, 0, 5, 0]
    assert staged.append(4, [[5]], True, False)
    assert staged.intervals() == [(0, 4, 0, [5])]
    assert staged.append(4, [[6]], False, False)
    assert staged.intervals() == [(0, 4, 0, [5, 6])]
    assert num_blocks[0].tolist() == [0, 0, 0, 0, 2, 0]
    assert (staged.num_records, staged.num_ids, staged.longest) == (1, 2, 2)


def test_an_empty_overwrite_is_a_write_and_an_empty_append_is_none(kind):
    staged, num_blocks = make(kind, 9, 9)
    num_blocks[:] = 3
    assert staged.append(1, [[], [7]], False, False)
    assert staged.intervals() == [(1, 1, 3, [7])]
    staged.clear()
    assert not staged
    assert staged.append(2, [[], []], False, False)
    assert not staged
    assert staged.append(2, [[], []], True, False)
    assert staged
    assert staged.intervals() == [(0, 2, 0, []), (1, 2, 0, [])]
    assert num_blocks.tolist() == [[3, 3, 0, 3, 3, 3], [3, 4, 0, 3, 3, 3]]
    assert (staged.num_records, staged.num_ids) == (2, 0)


def test_intervals_are_in_the_order_of_their_first_write(kind):
    staged, _ = make(kind, 9, 9)
    for row in (3, 1, 2, 1):
        assert staged.append(row, [[10 + row], []], True, False)
    assert staged.append(0, [[], [5]], False, False)
    assert [(group, row) for group, row, _, _ in staged.intervals()] == [
        *((0, 3), (0, 1), (0, 2)),
        *((1, 3), (1, 1), (1, 2), (1, 0)),
    ]


def test_a_redirected_write_counts_and_names_the_null_block(kind):
    staged, num_blocks = make(kind, 9)
    assert staged.append(0, [[7, 8]], False, True)
    assert staged.append(0, [[9]], False, False)
    assert staged.append_many([1], [[[4]]], [True], True)
    assert staged.intervals() == [(0, 0, 0, [0, 0, 9]), (0, 1, 0, [0])]
    assert num_blocks[0, :2].tolist() == [3, 1]


def test_the_callers_lists_are_copied(kind):
    staged, _ = make(kind, 9)
    ids = [1, 2]
    assert staged.append(0, [ids], False, False)
    assert staged.append(0, [[3]], False, False)
    assert ids == [1, 2]
    ids[0] = 9
    assert staged.intervals() == [(0, 0, 0, [1, 2, 3])]


def test_what_is_cleared_is_forgotten_but_counted(kind):
    staged, num_blocks = make(kind, 9)
    assert staged.append(0, [[1, 2]], False, False)
    staged.clear()
    assert (staged.intervals(), staged.num_records, staged.num_ids) == ([], 0, 0)
    assert staged.append(0, [[3]], False, False)
    assert staged.intervals() == [(0, 0, 2, [3])]
    assert num_blocks[0, 0] == staged.longest == 3


def test_the_longest_row_is_since_it_was_set(kind):
    staged, _ = make(kind, 9)
    assert staged.longest == 0
    assert staged.append(0, [[1, 2, 3]], False, False)
    staged.longest = 1
    assert not staged.append(0, [[0] * 7], False, False)
    assert staged.longest == 1
    assert staged.append(0, [[1, 2]], True, False)
    assert staged.longest == 2


def test_the_longest_row_may_become_shorter(kind):
    staged, _ = make(kind, 9, 9)
    assert staged.append(0, [[0] * 8, [0]], False, False)
    assert staged.append(1, [[0] * 2, [0] * 3], False, False)
    assert staged.longest == 8
    assert staged.append(1, [[], []], True, False)
    assert staged.longest == 8
    assert staged.append(0, [[0] * 5, [0] * 6], True, False)
    assert staged.longest == 6
    # What is refused has shortened nothing.
    assert not staged.append_many([0, 0], [[[], []], [[0] * 10, []]], [True, True], False)
    assert staged.longest == 6
    assert staged.append_many([0, 1], [[[], []], [[0] * 2, []]], [True, True], False)
    assert staged.longest == 2


def test_requests_together_are_requests_in_turn(kind):
    staged, num_blocks = make(kind, 9, 9)
    rows, overwrite = [3, 0, 3, 3], [False, True, True, False]
    ids = [[[1], [2]], [[], [3]], [[4], []], [[5, 6], [7]]]
    assert staged.append_many(rows, ids, overwrite, False)
    apart, num_blocks_apart = make(kind, 9, 9)
    for arguments in zip(rows, ids, overwrite, strict=True):
        assert apart.append(*arguments, False)
    assert staged.intervals() == apart.intervals()
    assert num_blocks.tolist() == num_blocks_apart.tolist()
    assert num_blocks[:, 3].tolist() == [3, 1]


def test_any_sequences_of_integers_will_do(kind):
    staged, num_blocks = make(kind, 99, 99)
    lists = (array("q", [1, 2]), np.array([3, 4]))
    assert staged.append(np.int64(2), lists, np.False_, False)
    lists = (bytes([5, 6, 7, 8]), (Number(9), True))
    assert staged.append(True, lists, 1, False)
    assert staged.append_many(np.array([2]), iter([[[np.int32(10)], range(2)]]), (0,), False)
    assert staged.intervals() == [
        (0, 2, 0, [1, 2, 10]),
        (0, 1, 0, [5, 6, 7, 8]),
        (1, 2, 0, [3, 4, 0, 1]),
        (1, 1, 0, [9, 1]),
    ]
    assert num_blocks.sum() == 13


# What is refused

IDS = "new_block_ids"
REFUSED = {
    "no row": ((None, [[1], [2]], False), "req_index is None; expected 0 to 5"),
    "a float row": ((1.0, [[1], [2]], False), "req_index is 1.0; expected 0 to 5"),
    "a row too low": ((-1, [[1], [2]], False), "req_index is -1; expected 0 to 5"),
    "a row too high": ((6, [[1], [2]], False), "req_index is 6; expected 0 to 5"),
    "a huge row": ((2**80, [[1], [2]], False), "expected 0 to 5"),
    "a list too few": ((1, [[1]], False), f"{IDS} has 1 lists; expected 2, one per group"),
    "a list too many": ((1, [[1], [2], [3]], False), f"{IDS} has 3 lists; expected 2"),
    "no lists": ((1, None, False), f"{IDS} has no lists; expected 2"),
    "a number as list": ((1, [[1], 2], False), rf"{IDS}\[1\] is 2; expected a list"),
    "a float id": ((1, [[1], [2, 3.0]], False), rf"{IDS}\[1\]\[1\] is 3.0; expected an integer"),
    "a text": ((1, [[1], "23"], False), rf"{IDS}\[1\]\[0\] is '2'; expected an integer"),
    "an id too high": ((1, [[INT32_MAX + 1], []], False), rf"{IDS}\[0\]\[0\] is 2147483648"),
    "an id too low": ((1, [[INT32_MIN - 1], []], False), rf"{IDS}\[0\]\[0\] is -2147483649"),
    "a huge id": ((1, [[], [2**80]], False), rf"{IDS}\[1\]\[0\] is 1208925819614629174706176"),
    "a row too wide": ((1, [[], [1, 2, 3]], False), "row 1 of group 1 would have 5 blocks; its"),
    "wide at once": ((1, [[], [1] * 5], True), "row 1 of group 1 would have 5 blocks; its table"),
}
LAYOUT = TableLayout((16, 16), (9, 4), MAX_NUM_REQS, max_num_batched_tokens=8)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_and_named_and_nothing_is_changed(kind, name):
    request, message = REFUSED[name]
    staged, num_blocks = make(kind, *LAYOUT.widths)
    assert staged.append(1, [[7], [8, 9]], False, False)
    before = (staged.intervals(), num_blocks.tolist(), staged.longest)

    assert staged.append(*request, False) is False
    assert before == (staged.intervals(), num_blocks.tolist(), staged.longest)
    with pytest.raises(ValueError, match=message):
        refuse_append(LAYOUT, num_blocks, *request)

    # The first is right, so that there is something to undo.
    together = [list(each) for each in zip((0, [[1], [1]], False), request, strict=True)]
    assert staged.append_many(*together, False) is False
    assert before == (staged.intervals(), num_blocks.tolist(), staged.longest)
    with pytest.raises(ValueError, match=f"request 1: .*{message}"):
        refuse_append_many(LAYOUT, num_blocks, *together)


def test_a_row_that_occurs_twice_gets_too_wide_the_second_time(kind):
    staged, num_blocks = make(kind, *LAYOUT.widths)
    assert staged.append(1, [[], [5]], False, False)
    together = ([1, 0, 1], [[[1], [1]], [[1], [1]], [[1], [1, 2, 3]]], [False] * 3)
    assert staged.append_many(*together, False) is False
    assert staged.intervals() == [(1, 1, 0, [5])]
    assert num_blocks.tolist() == [[0] * 6, [0, 1, 0, 0, 0, 0]]
    with pytest.raises(ValueError, match="request 2: row 1 of group 1 would have 5 blocks"):
        refuse_append_many(LAYOUT, num_blocks, *together)


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        (([0, 1], [[[1], [1]]], [False]), "2, 1 and 1"),
        (([0], [[[1], [1]]], []), "1, 1 and 0"),
        (([0], [[[1], [1]]], True), "1, 1 and no"),
    ],
)
def test_there_must_be_as_many_of_each(kind, arguments, sizes):
    staged, num_blocks = make(kind, *LAYOUT.widths)
    assert staged.append_many(*arguments, False) is False
    assert not staged
    message = f"req_indices, new_block_ids and overwrite have {sizes} entries"
    with pytest.raises(ValueError, match=message):
        refuse_append_many(LAYOUT, num_blocks, *arguments)


def test_to_refuse_what_is_right_is_a_defect():
    num_blocks = np.zeros((2, MAX_NUM_REQS), dtype=np.int32)
    with pytest.raises(RuntimeError, match="nothing is wrong; this is a bug"):
        refuse_append(LAYOUT, num_blocks, 0, [[1], []], False)
    with pytest.raises(RuntimeError, match="nothing is wrong; this is a bug"):
        refuse_append_many(LAYOUT, num_blocks, [0], [[[1], []]], [False])
    assert not num_blocks.any()


def test_an_error_of_the_caller_is_passed_on(kind):
    staged, num_blocks = make(kind, 9)

    def fail():
        raise KeyError("of the caller")

    with pytest.raises(KeyError, match="of the caller"):
        staged.append(0, [[1, Number(2, fail)]], False, False)
    with pytest.raises(KeyError, match="of the caller"):
        staged.append_many([1, Number(0, fail)], [[[1]], [[2]]], [False, False], False)
    with pytest.raises(TypeError, match="perhaps"):
        staged.append(0, [[1]], False, Unsure())
    assert staged.append(0, [[1]], Unsure(), False) is False
    assert not staged
    assert not num_blocks.any()


def test_lists_may_change_while_they_are_read(kind):
    staged, num_blocks = make(kind, 9)
    ids = [1, 2, 3]
    ids[0] = Number(1, ids.clear)
    with pytest.raises(IndexError):
        staged.append(0, [ids], False, False)
    lists = [[1]]
    lists[0][0] = Number(1, lists.clear)
    assert staged.append(0, lists, False, False)  # each was there when it was read
    rows = [0, 1]
    rows[0] = Number(0, rows.clear)
    assert staged.append_many(rows, [[[1]], [[2]]], [False, False], False) is False
    assert staged.intervals() == [(0, 0, 0, [1])]
    assert num_blocks.sum() == 1


def test_a_call_may_be_made_while_another_reads_its_arguments(kind):
    staged, num_blocks = make(kind, 99)

    def more():
        assert staged.append(0, [list(range(20))], False, False)

    assert staged.append(0, [[70, Number(71, more), 72]], False, False)
    assert staged.append_many([0, Number(0, more)], [[[73]], [[74]]], [False] * 2, False)
    others = [*range(20)]
    assert staged.intervals() == [(0, 0, 0, [*others, 70, 71, 72, *others, 73, 74])]
    assert num_blocks[0, 0] == 45


@pytest.mark.parametrize(
    "num_blocks",
    [
        np.zeros((2, 4), dtype=np.int64),
        np.zeros((1, 4), dtype=np.int32),
        np.zeros(8, dtype=np.int32),
        np.zeros((2, 0), dtype=np.int32),
        np.zeros((4, 2), dtype=np.int32).T,
        np.frombuffer(bytes(32), dtype=np.int32).reshape(2, 4),
    ],
    ids=["int64", "a group short", "flat", "no rows", "transposed", "read-only"],
)
def test_other_numbers_of_blocks_are_refused(kind, num_blocks):
    message = "num_blocks is not a writable C-contiguous int32 array of 2 rows, one per group"
    with pytest.raises(ValueError, match=message):
        kind((9, 9), num_blocks)


# How it is packed


def staged_for_packing(kind):
    staged, num_blocks = make(kind, 9, 9, 9)
    num_blocks[0, 4], num_blocks[2, 1] = 2, 6
    assert staged.append(4, [[70, 71], [], []], False, False)
    num_blocks[:2, 5] = 1
    assert staged.append_many([5, 1], [[[], [], []], [[], [], [72]]], [True, False], False)
    return staged


def view_of(size):
    buffer = np.full(size, -1, dtype=np.int32)
    return memoryview(buffer), buffer


@pytest.mark.parametrize("first", [0, 3])
def test_records_come_first_and_say_where_their_ids_are(kind, first):
    staged = staged_for_packing(kind)
    size = first + RECORD_FIELDS * staged.num_records + staged.num_ids
    view, buffer = view_of(size + 1)
    assert staged.pack(view, first) == [2, 1, 2]
    place = first + 5 * RECORD_FIELDS
    assert buffer.tolist() == [
        *([-1] * first),
        *(0, 4, 2, 2, place),
        *(0, 5, 0, 0, place + 2),
        *(1, 5, 0, 0, place + 2),
        *(2, 5, 0, 0, place + 2),
        *(2, 1, 6, 1, place + 2),
        *(70, 71, 72),
        -1,
    ]


def test_a_step_has_marks_and_records_and_the_ids_that_are_not_in_them(kind):
    staged = staged_for_packing(kind)
    num_marks = 3 * MAX_NUM_REQS
    first = num_marks * MARK_FIELDS + 1
    place = first + 5 * STEP_RECORD_FIELDS
    view, buffer = view_of(place + 3)
    assert staged.pack_step(view, first, 11) is None
    records = [
        (0, 4, 2, 4, place, 11, 0, 0),
        (0, 5, 0, 0, place + 2, 11, 0, 0),
        (1, 5, 0, 0, place + 2, 11, 0, 0),
        (2, 5, 0, 0, place + 2, 11, 0, 0),
        (2, 1, 6, 7, 72, 11, 0, 0),
    ]
    assert buffer[first:place].reshape(-1, STEP_RECORD_FIELDS).tolist() == list(map(list, records))
    assert buffer[place:].tolist() == [70, 71, -1]
    marks = np.full((num_marks, MARK_FIELDS), -1)
    for group, row, *mark, _, _ in records:
        marks[group * MAX_NUM_REQS + row] = mark
    assert buffer[: first - 1].reshape(-1, MARK_FIELDS).tolist() == marks.tolist()


def test_nothing_is_written_outside_of_the_view(kind):
    staged = staged_for_packing(kind)
    records = 3 * MAX_NUM_REQS * MARK_FIELDS
    for pack, size, first in (
        (lambda view: staged.pack(view, 2), 2 + 28, "first"),
        (lambda view: staged.pack_step(view, records, 1), records + 42, "first_record"),
    ):
        view, buffer = view_of(size)
        for short in range(1, 4):
            message = f"view has {size - short} elements; expected {size} or more"
            with pytest.raises(ValueError, match=message):
                pack(view[: size - short])
        assert (buffer == -1).all(), first
        pack(view)
        assert (buffer != -1).any(), first


@pytest.mark.parametrize("first", [-1, 2**62, 2**80])
def test_a_place_that_does_not_exist_is_refused(kind, first):
    staged = staged_for_packing(kind)
    view, buffer = view_of(500)
    for pack in (lambda: staged.pack(view, first), lambda: staged.pack_step(view, first, 1)):
        with pytest.raises(ValueError, match=r"is -1; expected|view has 500 elements|cannot fit"):
            pack()
    assert (buffer == -1).all()


def test_records_among_the_marks_are_refused(kind):
    staged = staged_for_packing(kind)
    with pytest.raises(ValueError, match="first_record is 71; expected 72 or more, after the mark"):
        staged.pack_step(view_of(500)[0], 71, 1)


@pytest.mark.parametrize(
    "view",
    [
        memoryview(np.zeros(500, dtype=np.int64)),
        memoryview(np.zeros(500, dtype=np.float32)),
        memoryview(np.zeros(1000, dtype=np.int32))[::2],
        memoryview(np.zeros((500, 1), dtype=np.int32)),
        memoryview(bytes(2000)).cast("i"),
        np.zeros(1000, dtype=np.int32)[::2],
    ],
    ids=["int64", "float", "strided", "matrix", "read-only", "strided array"],
)
def test_other_views_are_refused(kind, view):
    staged = staged_for_packing(kind)
    for pack in (lambda: staged.pack(view, 0), lambda: staged.pack_step(view, 72, 1)):
        with pytest.raises(ValueError, match="view is not a writable, contiguous view of int32"):
            pack()


def test_what_is_no_step_is_refused(kind):
    staged = staged_for_packing(kind)
    with pytest.raises(OverflowError):
        staged.pack_step(view_of(500)[0], 72, 2**31)
    with pytest.raises(TypeError):
        staged.pack_step(view_of(500)[0], 72, 1.0)


SEVERAL = -(2**63)


def words_of(size):
    return memoryview(array("q", [-1] * size))


def packed_by(staged, payload, ids_apart=None):
    """What `pack_words` returns, and the bitmap."""
    bitmap = words_of(2)  # a word for each group of up to 48 rows
    return staged.pack_words(bitmap, payload, ids_apart), bitmap.tolist()


def int32_of(words):
    return words.cast("B").cast("i").tolist()


def test_words_say_which_rows_have_an_interval_and_where_it_is(kind):
    staged, num_blocks = make(kind, 70_000, 70_000)
    num_blocks[0, 5] = MOST_WORDS
    assert staged.append(5, [[-2], []], False, False)
    assert staged.append(0, [[INT32_MAX], [7]], True, False)
    payload = words_of(4)
    assert packed_by(staged, payload) == ((3, 0, 3, 3, 0, 1), [0b100001, 2 << 48 | 0b1])
    # In the order of groups and rows, whatever the order in which they were staged.
    wanted = [INT32_MAX, 5 << 48 | MOST_WORDS << 32 | 0xFFFFFFFE, 7, -1]
    assert payload.tolist() == wanted


def test_a_bitmap_has_a_word_for_48_rows(kind):
    num_blocks = np.zeros((2, 97), dtype=np.int32)
    staged = kind((9, 9), num_blocks)
    for row in (96, 48, 47, 0):
        assert staged.append(row, [[row], []] if row else [[], [5]], False, False)
    bitmap, payload = words_of(7), words_of(4)
    assert staged.pack_words(bitmap, payload) == (4, 0, 4, 4, 0, 1)
    last = 1 << 47
    assert bitmap.tolist() == [last, 1 << 48 | 1, 2 << 48 | 1, 3 << 48 | 1, 4 << 48, 4 << 48, -1]
    assert payload.tolist() == [47 << 48 | 47, 48 << 48 | 48, 96 << 48 | 96, 5]
    assert bitmap_words(48) == 1
    assert bitmap_words(49) == 2


def test_intervals_of_another_number_of_ids_than_one_have_them_apart(kind):
    staged, num_blocks = make(kind, 40_000, 40_000)
    num_blocks[0, 5] = 9
    assert staged.append(5, [[-2, 3], [4]], False, False)
    assert staged.append(0, [[INT32_MAX, 7, -1], []], True, False)

    def intervals(*places):
        return [
            SEVERAL | 3 << 16 | places[0],
            SEVERAL | 5 << 48 | 9 << 32 | 2 << 16 | places[1],
            SEVERAL | places[2],
            5 << 48 | 4,
        ]

    pieces = [1, 0]  # intervals as they were staged; none of the empty one
    ids = [-2, 3, INT32_MAX, 7, -1]
    wanted = (4, 2, 5, 8, 4, 3)
    payload = words_of(8)
    assert packed_by(staged, payload) == (wanted, [0b100001, 2 << 48 | 0b100001])
    assert payload.tolist()[:4] == intervals(2, 0, 5)
    assert int32_of(payload)[8:] == [*pieces, *ids, 0]
    # Apart, those of an interval begin at multiples of four.
    payload, apart = words_of(5), words_of(4)
    assert packed_by(staged, payload, apart)[0] == wanted
    assert payload.tolist()[:4] == intervals(1, 0, 2)
    assert int32_of(payload)[8:] == pieces
    assert int32_of(apart) == [-2, 3, 0, 0, INT32_MAX, 7, -1, 0]
    # Words may be in a view of int32, of whose last half a word nothing is used.
    view, buffer = view_of(17)
    assert packed_by(staged, view)[0] == wanted
    assert buffer[8:16].tolist() == [*pieces, *ids, 0]
    assert buffer[16] == -1


def test_long_intervals_have_several_pieces(kind):
    staged, _ = make(kind, 9_999)
    lengths = {3: PIECE_IDS, 1: PIECE_IDS + 1, 2: 1, 0: 3 * PIECE_IDS}
    for row, length in lengths.items():
        assert staged.append(row, [range(length)], True, False)
    payload = words_of(4_000)
    head = 4 + 3
    size = head + (5 * PIECE_IDS + 1) // 2 + 1
    assert staged.pack_words(words_of(1), payload)[:4] == (4, 6, head, size)
    pieces = [3, 1, 1 << 16 | 1, 0, 1 << 16, 2 << 16]
    assert int32_of(payload)[8 : 8 + 6] == pieces


def test_odd_numbers_of_ids_and_pieces_end_with_half_a_word(kind):
    staged, _ = make(kind, 9)
    assert staged.append(0, [[5, 6, 7]], True, False)
    payload = words_of(5)
    assert staged.pack_words(words_of(1), payload) == (1, 1, 2, 4, 2, 3)
    assert int32_of(payload)[2:] == [0, 0, 5, 6, 7, 0, -1, -1]


@pytest.mark.parametrize("rooms", [(6, None), (2, 4), (4, 3), (0, 0)])
def test_what_does_not_fit_a_view_is_not_written_and_its_size_is_told(kind, rooms):
    staged, _ = make(kind, 9, 9)
    assert staged.append(5, [[2, 3], [4]], True, False)
    assert staged.append(0, [[1, 7, 9], []], True, False)
    views = [None if room is None else words_of(room) for room in rooms]
    assert packed_by(staged, *views)[0] == (4, 2, 5, 8, 4, 3)
    assert all(set(view) <= {-1} for view in views if view is not None)


@pytest.mark.parametrize("what", ["column", "length", "ids", "ids carried", "intervals"])
def test_what_words_cannot_tell_is_said_to(kind, what):
    num_blocks = np.zeros((3, 32_000), dtype=np.int32)
    staged = kind((70_000,) * 3, num_blocks)
    payload = words_of(9)
    if what == "column":
        num_blocks[1, 2] = MOST_WORDS
        assert staged.append(2, [[], [1], []], False, False)
        assert staged.pack_words(words_of(2001), payload) is not None
        staged.clear()
        assert staged.append(2, [[], [1], []], False, False)
    elif what == "length":
        assert staged.append(2, [range(MOST_WORDS), [], []], False, False)
        assert staged.pack_words(words_of(2001), payload) is not None
        assert staged.append(2, [[1], [], []], False, False)
    elif what == "ids":
        # Of each interval, whole multiples of four: 4 * 65,535 in all.
        for row in range(4):
            assert staged.append(row, [range(MOST_WORDS - 3), [], []], False, False)
        assert staged.append(4, [range(12), [], []], False, False)
        assert staged.pack_words(words_of(2001), payload) is not None
        assert staged.append(5, [[1, 2], [], []], False, False)
    elif what == "ids carried":
        payload = words_of(MOST_WORDS)
        assert staged.append(2, [range(MOST_WORDS), [], []], False, False)
        assert staged.pack_words(words_of(2001), payload) is not None
        assert staged.append(3, [[1, 2], [], []], False, False)
        assert staged.pack_words(words_of(2001), payload, words_of(0)) is not None
    else:
        requests = [[[1], [1], []]] * 32_000
        assert staged.append_many(range(32_000), requests, [False] * 32_000, False)
        assert staged.append_many(range(1535), [[[], [], [1]]] * 1535, [False] * 1535, False)
        assert staged.pack_words(words_of(2001), payload) is not None
        assert staged.append(1535, [[], [], [1]], False, False)
    assert staged.pack_words(words_of(2001), payload) is None


def test_other_words_are_refused(kind):
    staged, _ = make(kind, 9, 9)
    with pytest.raises(ValueError, match="bitmap has 1 words; expected 2 groups of 1"):
        staged.pack_words(words_of(1), words_of(2))
    wrong = [
        memoryview(bytes(16)).cast("q"),
        memoryview(bytearray(16)),
        memoryview(np.zeros(8, dtype=np.int64))[::2],
        memoryview(np.zeros((2, 2), dtype=np.int64)),
    ]
    for view in wrong:
        for place, name in enumerate(("bitmap", "payload", "ids_apart")):
            views = [words_of(2), words_of(2), words_of(2)]
            views[place] = view
            with pytest.raises(ValueError, match=f"{name} is not a writable, contiguous view of"):
                staged.pack_words(*views)


# Of requests, without a function in Python on the way


def refuse(*given):
    raise KeyError(given)


def test_requests_are_staged_and_refused_without_python():
    staged, num_blocks = make(in_c(), 3, 9)
    staged.refuse = refuse
    assert staged.append_block_ids(5, [[1], [2, 3]], True) is None
    staged.append_block_ids(overwrite=False, new_block_ids=[[4], []], req_index=5)
    staged.append_block_ids(5, [[], [7]], overwrite=False)
    assert staged.intervals() == [(0, 5, 0, [1, 4]), (1, 5, 0, [2, 3, 7])]
    wrong = [(6, [[], []], True), (5, [[1, 1], []], False), (5, [["1"], []], False)]
    for given in wrong:
        with pytest.raises(KeyError) as raised:
            staged.append_block_ids(*given)
        assert raised.value.args == (given,)
    staged.refuse = lambda *_: None
    with pytest.raises(ValueError, match="the request is refused"):
        staged.append_block_ids(*wrong[0])
    staged.redirects = 1
    assert staged.redirects is True
    staged.append_block_ids(0, [[8], []], True)
    staged.redirects = False
    assert staged.intervals()[1] == (0, 0, 0, [0])
    assert num_blocks[:, 5].tolist() == [2, 3]


def test_many_requests_are_staged_and_refused_without_python():
    staged, num_blocks = make(in_c(), 3, 9)
    staged.refuse_many = refuse
    assert staged.append_requests([5, 0], [[[1], [2]], [[3], []]], [True, False]) is None
    staged.append_requests(overwrite=(False,), new_block_ids=([[4], []],), req_indices=(5,))
    staged.append_requests([], [], overwrite=[])
    assert staged.intervals() == [(0, 5, 0, [1, 4]), (0, 0, 0, [3]), (1, 5, 0, [2])]
    wrong = [
        ([6], [[[], []]], [True]),
        ([1], [], [True]),
        ([0, 0], [[[1] * 2, []]] * 2, [False] * 2),
    ]
    for given in wrong:
        with pytest.raises(KeyError) as raised:
            staged.append_requests(*given)
        assert raised.value.args == (given,)
    staged.refuse_many = lambda *_: None
    with pytest.raises(ValueError, match="the request is refused"):
        staged.append_requests(*wrong[0])
    staged.redirects = 1
    staged.append_requests([0], [[[8], []]], [True])
    assert staged.intervals()[1] == (0, 0, 0, [0])
    assert num_blocks[:, 5].tolist() == [2, 1]
    with pytest.raises(TypeError, match="append_many has no argument 'replace', or was given two"):
        staged.append_requests([0], [[[8], []]], replace=[True])
    with pytest.raises(TypeError, match="append_many"):
        staged.append_requests([0])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((), {}),
        ((1, [[]]), {}),
        ((1, [[]], True, 3), {}),
        ((1, [[]], True), {"overwrite": True}),
        ((1, [[]]), {"replace": True}),
        ((1, [[]]), {"req_index": 1}),
    ],
)
def test_arguments_that_do_not_exist_are_refused(given, named):
    staged, _ = make(in_c(), 3)
    with pytest.raises(TypeError, match="append_block_ids"):
        staged.append_block_ids(*given, **named)
    assert not staged


# Python and C


def outcome_of(method, *arguments):
    try:
        return method(*arguments)
    except Exception as error:
        return type(error), str(error)


def trace_of(kind, seed, odd):
    """What a random sequence of calls comes to; the same calls for the same seed."""
    rng = random.Random(seed)
    num_groups = rng.randrange(1, 5)
    widths = [rng.choice((6, 40, 300)) for _ in range(num_groups)]
    staged, num_blocks = make(kind, *widths)
    marks = num_groups * MAX_NUM_REQS * MARK_FIELDS
    trace = []
    for step in range(60):
        action, redirect = rng.random(), rng.random() < 0.1
        if action < 0.5:
            request = request_for(rng, num_groups, MAX_NUM_REQS, odd)
            trace.append(outcome_of(staged.append, *request, redirect))
        elif action < 0.75:
            requests = [
                request_for(rng, num_groups, MAX_NUM_REQS, odd) for _ in range(rng.randrange(5))
            ]
            rows, lists, overwrite = (
                map(list, zip(*requests, strict=True)) if requests else [()] * 3
            )
            if odd and rng.random() < 0.1:
                rows = rows[1:]
            trace.append(outcome_of(staged.append_many, rows, lists, overwrite, redirect))
        elif action < 0.95:
            view, buffer = view_of(marks + rng.choice((30, 300, 3000)))
            first = rng.choice((0, 7, marks, marks + 1))
            trace.append(outcome_of(staged.pack, view, first))
            trace.append(outcome_of(staged.pack_step, view, first, step))
            trace.append(buffer.tolist())
            views = [words_of(rng.choice((num_groups, num_groups, 0))), words_of(rng.randrange(40))]
            views += [words_of(rng.randrange(40))] * rng.randrange(2)
            trace.append(outcome_of(staged.pack_words, *views))
            trace.append([view.tolist() for view in views])
        elif rng.random() < 0.5:
            staged.clear()
        else:
            staged.longest = int(num_blocks.max())
        trace.append((bool(staged), staged.num_records, staged.num_ids, staged.longest))
        trace.append(staged.intervals())
        trace.append(num_blocks.tolist())
    return trace


@pytest.mark.parametrize("odd", [False, True], ids=["right", "odd"])
def test_c_does_what_python_does(odd):
    kind = in_c()
    outcomes = []
    for seed in range(40):
        expected, found = trace_of(StagedWrites, seed, odd), trace_of(kind, seed, odd)
        for place, (one, other) in enumerate(zip(expected, found, strict=True)):
            assert one == other, (seed, place)
        outcomes += [outcome for outcome in expected if isinstance(outcome, bool)]
    # Calls of both ends have been compared.
    assert 0.05 < sum(outcomes) / len(outcomes) < 0.99


def test_what_many_overwrites_leave_behind_does_no_harm():
    """In C, ids stay where they are until they are compacted."""
    traces = []
    for kind in (StagedWrites, in_c()):
        staged, _ = make(kind, 50, 50)
        trace = []
        for turn in range(300):
            row = turn % 3
            assert staged.append(row, [[turn] * (turn % 7), [turn]], turn % 5 != 0, False)
            if turn % 11 == 0:
                trace.append(staged.intervals())
        traces.append(trace)
    assert traces[0] == traces[1]
