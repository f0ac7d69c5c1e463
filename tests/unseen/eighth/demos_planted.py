"""Legal calls by which each fault shows."""

import numpy as np
import torch
from bt_kernels.layout import TableLayout
from common import Differs, Pair, i32, i64

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


@demo
def compacts_one_piece(variant):
    pair = Pair(variant, TableLayout((4,), (40,), 4, 16))
    for turn in range(5):
        pair.append(0, [[10 + turn]])
        pair.append(1, [[30 + turn]])
        for again in range(6):
            pair.append(2, [list(range(100 * turn + again + 1, 100 * turn + again + 31))], True)
    pair.append(2, [[7]], True)
    for turn in range(60):
        pair.append(3, [list(range(500 + turn, 540 + turn))], True)
    pair.step(i32(0, 1, 2), i32(0, 1, 2, 3), i64(0, 1, 2), 3, 4)


@demo
def order_of_last_two(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 6, 16))
    for row in (5, 1, 3):
        pair.append(row, [[100 + row]])
    pair.step(i32(1, 3, 5), i32(0, 1, 2, 3), i64(0, 1, 2), 4, 4)


@demo
def listed_head_not_rounded(variant):
    for several in (1, 2, 3, 4):
        pair = Pair(variant, TableLayout((4,), (8,), 8, 16))
        for row in range(8):
            pair.append(row, [[10 * row + n for n in range(3 if row < several else 1)]])
        pair.step(i32(0, 1, 2), i32(0, 1, 2, 3), i64(0, 1, 2), 4, 4)


@demo
def tokens_of_each_request(variant):
    pair = Pair(variant, TableLayout((4, 2), (20, 40), 8, 64))
    for row in range(8):
        pair.append(
            row, [[10 * row + n for n in range(15)], [500 + 20 * row + n for n in range(30)]]
        )
    pair.step(i32(3, 0, 1), i32(0, 1, 51, 52), torch.arange(52) % 51, 8, 60)


@demo
def size_without_headers(variant):
    pair = Pair(variant, TableLayout((4,), (700,), 2, 16))
    pair.append(0, [[3]])
    pair.step(i32(0), i32(0, 1), i64(2), 2, 4)
    pair.append(1, [list(range(100, 660))])
    pair.step(i32(1, 0), i32(0, 1, 2), i64(2239, 0), 2, 4)


@demo
def settles_if_staged(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.append(0, [[3]])
    batch = i32(0), i32(0, 1), i64(2), 2, 4
    step = pair.capture(*batch)
    pair.compare("capture")
    pair.append(0, [[9]])
    pair.publish(step, 2)
    pair.apply()


@demo
def capacity_of_a_rank(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 4, 16, cp_size=2, cp_rank=1))
    pair.append(1, [[3, 4, 5, 6]])
    pair.step(i32(1), i32(0, 6), i64(3, 4, 15, 17, 25, 31), 2, 8)


@demo
def no_spans_for_small_layouts(variant):
    pair = Pair(variant, TableLayout((8,), (30,), 2, 64))
    pair.append(1, [list(range(40, 70))])
    out = torch.full((1, 220), 5, dtype=torch.int64)
    pair.step(i32(1), i32(0, 200), torch.arange(200), 1, 210, slots_out=out)


def ids(first, number):
    return list(range(first, first + number))


@demo
def distance_of_request(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 16, 256))
    rows = 14  # more than 12: tiles of two requests
    for row in range(rows):
        pair.append(row, [ids(10 * row + 1, 6)], True)
    starts = [0]
    for row in range(rows):
        starts.append(starts[-1] + (20 if row in (0, 1) else 1))
    positions = [n - starts[r] for r in range(rows) for n in range(starts[r], starts[r + 1])]
    pair.step(i32(*range(rows)), i32(*starts), i64(*positions), rows, starts[-1])


@demo
def farthest_of_last(variant):
    rows = 258
    pair = Pair(variant, TableLayout((16,), (4,), rows, 400))
    pair.append(3, [ids(7, 4)], True)
    starts = [0]
    for row in range(rows):
        starts.append(starts[-1] + (50 if row == 3 else row % 7 == 0))
    positions = [n - starts[r] for r in range(rows) for n in range(starts[r], starts[r + 1])]
    pair.step(i32(*range(rows)), i32(*starts), i64(*positions), rows, starts[-1])


@demo
def left_of_wide_mapping(variant):
    pair = Pair(variant, TableLayout((4,), (40,), 4, 16))
    pair.append(0, [ids(100, 30)], True)
    pair.append(2, [ids(200, 3)], True)
    pair.step(i64(2, 1), i32(0, 1, 2), i64(0, 0), 2, 2)


@demo
def hidden_ids_dropped(variant):
    pair = Pair(variant, TableLayout((4,), (40,), 4, 16, sliding_window_reach=(8,)))
    pair.append(1, [ids(100, 30)], True)
    pair.step(i32(1), i32(0, 1), i64(90), 1, 1, num_computed_tokens=i32(0, 90, 0, 0))


@demo
def shared_by_all(variant):
    pair = Pair(variant, TableLayout((16,), (1500,), 4, 16))
    pair.append(0, [ids(1, 5)], True)
    pair.append(2, [ids(11, 3)], True)
    pair.poison(77)
    pair.step(i32(0, -1, 2), i32(0, 1, 1, 2), i64(3, 4), 4, 4)


@demo
def ids_behind_odd_list(variant):
    pair = Pair(variant, TableLayout((4,), (40,), 8, 16))
    for row in range(4):
        pair.append(row, [[50 + row]], True)
    pair.append(5, [ids(100, 20)], True)
    pair.append(6, [ids(200, 9)], True)
    pair.step(i32(5, 0), i32(0, 2, 3), i64(9, 70, 1), 2, 3)


@demo
def empty_record_uncounted(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.append(1, [ids(5, 3)], True)
    pair.step(i32(1), i32(0, 1), i64(2), 1, 1)
    pair.append(1, [[]], True)
    pair.step(i32(1), i32(0, 1), i64(2), 1, 1)
    pair.poison(77)
    pair.step(i32(1), i32(0, 1), i64(2), 1, 1)
