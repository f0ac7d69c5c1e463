"""Legal calls by which each fault shows."""

import torch
from common import Pair, i32, i64

from bt_kernels.layout import TableLayout

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


@demo
def order_forgotten(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 6, 16))
    for row in (3, 1, 2):
        pair.append(row, [[10 + row]], True)
    pair.step(i64(1, 2, 3), i32(0, 1, 2, 3), i64(0, 1, 2), 3, 3)


@demo
def compact_contiguous(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.append(0, [[11]])
    pair.append(1, [[21]])
    pair.append(0, [[12]])
    for turn in range(8):
        pair.append(2, [[30 + turn, 40 + turn, 50 + turn]], True)
    pair.apply()


@demo
def rollback_forwards(variant):
    pair = Pair(variant, TableLayout((4, 8), (4, 2), 4, 16))
    pair.append(2, [[3], [4]], True)
    rows, ids = [1, 1, 2], [[[5], [6]], [[7], []], [[8], [9, 10]]]
    pair.refused("append_many", lambda: pair.v.append_many(rows, ids, [False] * 3))


@demo
def stale_targets(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 4, 16))
    pair.append(1, [[7, 8]], True)
    out = [torch.zeros((2, 4), dtype=torch.int32)]
    pair.step(i64(1), i32(0, 1), i64(2), 1, 1, out=out)
    slots = torch.zeros((1, 8), dtype=torch.int64)
    pair.step(i64(1), i32(0, 1), i64(5), 1, 1, slots_out=slots)


@demo
def ring_half(variant):
    pair = Pair(variant, TableLayout((4,), (32,), 2, 16))
    pair.append(1, [list(range(100, 120))], True)
    pair.step(i64(1), i32(0, 1), i64(70), 1, 1)


@demo
def step_numbers_wrap(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 3, 8))
    batch = i64(2), i32(0, 1), i64(1), 1, 1
    pair.append(2, [[9]], True)
    pair.step(*batch)
    pair.append(2, [[5]], True)
    pair.apply()
    for turn in range(64):
        pair.append(0, [[turn + 20]], True)
        pair.step(*batch)


@demo
def empty_overwrite_counted(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 3, 8))
    pair.append(1, [[7, 8, 9]], True)
    pair.apply()
    pair.append(1, [[]], True)
    pair.v.init_block_table_layout_tensors()
    pair.gather(i64(1), 1)


@demo
def empty_publish(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 3, 8))
    step = pair.capture(i64(1), i32(0, 1), i64(0), 1, 1)
    pair.append(1, [[7, 8]], True)
    pair.publish(step, 1, compare=False)
    pair.publish(step, 1, compare=False)
    pair.apply()


@demo
def stale_behind_window(variant):
    pair = Pair(variant, TableLayout((4,), (64,), 4, 16, sliding_window_reach=(8,)))
    computed = i32(0, 160, 0, 0)
    batch = i32(1), i32(0, 1), i64(160), 1, 1
    pair.append(1, [range(100, 150)], True)
    pair.step(*batch)
    pair.append(1, [range(200, 250)], True)
    pair.step(*batch, num_computed_tokens=computed)


@demo
def bisection_stops_early(variant):
    pair = Pair(variant, TableLayout((4,), (64,), 4, 256))
    for row in range(3):
        pair.append(row, [range(100 * row + 1, 100 * row + 26)], True)
    pair.step(
        i32(0, 1, 2),
        i32(0, 40, 80, 170),
        torch.cat([torch.arange(40), torch.arange(40), torch.arange(90)]),
        3,
        200,
    )


@demo
def shift_in_int32(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 48, 16))
    for row in (3, 40, 41):
        pair.append(row, [[row + 100]], True)
    pair.step(i32(40, 3, 41), i32(0, 1, 2, 3), i64(0, 1, 2), 3, 4)


@demo
def sharded_offset_in_int32(variant):
    layout = TableLayout((2**30,), (2,), 2, 8, cp_size=3, cp_rank=2, cp_interleave=2**30)
    pair = Pair(variant, layout)
    pair.append(1, [[5, 7]], True)
    pair.apply()
    pair.slots(i32(1), i32(0, 3), i64(2**31 - 1, 2**31 + 5, 3 * 2**30 + 2**31 + 1), 4)


@demo
def pads_in_one_pass(variant):
    pair = Pair(variant, TableLayout((16,), (8,), 2, 16))
    pair.append(0, [[3]], True)
    out = torch.full((1, 17_000), 99)
    pair.step(i32(0), i32(0, 1), i64(5), 1, 4, slots_out=out)


@demo
def limit_of_tables(variant):
    pair = Pair(variant, TableLayout((16,), (8,), 2, 16))
    pair.append(0, [[3]], True)
    out = torch.full((1, 40), 99)
    pair.step(i32(0), i32(0, 1), i64(5), 1, 4, slots_out=out)


@demo
def rows_of_14_bits(variant):
    pair = Pair(variant, TableLayout((16,), (2,), 20_000, 16))
    pair.append(17_000, [[3]], True)
    pair.append(5, [[4]], True)
    pair.step(i32(17_000, 5), i32(0, 1, 2), i64(5, 6), 2, 4)
