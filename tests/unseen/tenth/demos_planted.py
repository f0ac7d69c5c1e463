"""Legal calls by which each fault shows."""

import torch
from common import Pair, i32, i64

from bt_kernels.layout import TableLayout

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


def _two_groups(**options):
    return TableLayout((4, 8), (8, 6), 4, 16, **options)


@demo
def staged_order(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    for row, block in ((3, 13), (0, 10), (2, 12)):
        pair.append(row, [[block]], True)
    pair.step(i32(0, 2, 3), i32(0, 1, 2, 3), i64(1, 2, 3), 3, 4)


@demo
def compacted_pieces(variant):
    pair = Pair(variant, TableLayout((4,), (32,), 4, 16))
    for step in range(3):
        pair.append(0, [[10 + step]])
        pair.append(1, [[20 + step]])
    for first in range(100, 1000, 20):
        pair.append(2, [list(range(first, first + 20))], True)
    pair.append(0, [[13]])
    pair.apply()


@demo
def overlap_from_below(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    memory = torch.zeros(12, 8, dtype=torch.int32)
    pair.v.block_tables[0] = memory[4:8]
    pair.v.init_block_table_layout_tensors()
    pair.addresses = pair._addresses()
    pair.append(1, [[5, 6, 7]], True)
    pair.apply()
    pair.gather(i32(1, 1), 2, out=[memory[:4]])
    pair.refused(
        "out ends in a table", lambda: pair.v.gather_block_tables(i32(1, 1), 2, [memory[2:6]])
    )


@demo
def captured_room(variant):
    pair = Pair(variant, TableLayout((4,), (16,), 4, 16))
    batch = i32(0, 1), i32(0, 1, 2), i64(3, 2)
    pair.append(0, [[1, 2]], True)
    pair.capture(*batch, 2, 4)
    step = pair.capture(*batch, 2, 4)
    pair.append(0, [list(range(20, 28))], True)
    pair.append(1, [list(range(40, 48))], True)
    pair.publish(step, 2, compare=False)  # 26 elements; there is room for 24
    pair.step(*batch, 2, 4)


@demo
def published_counts(variant):
    pair = Pair(variant, _two_groups())
    batch = i32(0, 1), i32(0, 1, 2), i64(3, 2)
    pair.append(0, [[1, 2], [3]], True)
    step = pair.capture(*batch, 2, 4)
    pair.poison(77)
    pair.append(0, [[5, 6], [7]])
    pair.publish(step, 2)
    pair.v.init_block_table_layout_tensors()
    pair.gather(i32(0), 2)
    pair.step(*batch, 2, 4)


@demo
def dirty_rows_of_out(variant):
    pair = Pair(variant, _two_groups())
    for row in range(4):
        pair.append(row, [[row + 1, row + 2], [row + 5]], True)
    pair.step(i32(3, 2, 1, 0), i32(0, 1, 2, 3, 4), i64(1, 2, 3, 4), 4, 4)
    out = [torch.full((4, width), 9, dtype=torch.int32) for width in (8, 6)]
    pair.step(i32(1), i32(0, 1), i64(3), 2, 4, out=out)


@demo
def restore_counts(variant):
    pair = Pair(variant, _two_groups())
    pair.append(1, [[5, 6], [7]], True)
    pair.apply()
    state = pair.snapshot()
    pair.append(1, [[8, 9], [10]])
    pair.apply()
    pair.append(1, [[11], []])
    pair.restore(state)
    pair.poison(77)
    pair.gather(i32(1), 2)


@demo
def window_of_ranks(variant):
    pair = Pair(variant, _two_groups(cp_size=2, cp_rank=1, sliding_window_reach=(4, 0)))
    pair.append(2, [[5, 6, 7, 8], [9, 10]], True)
    pair.apply()
    pair.both(i32(2), i32(0, 2), i64(26, 27), 2, 4, num_computed_tokens=i32(0, 0, 26, 0))


@demo
def bits_below_in_int32(variant):
    pair = Pair(variant, TableLayout((16, 4), (8, 6), 45, 32))
    for row in (3, 17, 40, 44):
        pair.append(row, [[row + 1, row + 2], [row + 5]], overwrite=True)
    pair.step(i32(40, 3, 17), i32(0, 2, 3, 4), i64(0, 17, 1, 2), 4, 8)
    pair.append(40, [[7], [8]])
    pair.append(33, [[9], [10]], overwrite=True)
    pair.step(i64(40, 33), i32(0, 1, 2), i64(33, 0), 2, 2)


@demo
def padding_of_wide_tables(variant):
    pair = Pair(variant, TableLayout((16,), (1600,), 5, 16))
    pair.append(1, [[5, 6]], overwrite=True)
    pair.append(4, [[7]], overwrite=True)
    pair.poison(77)
    pair.step(i32(1, 4), i32(0, 1, 2), i64(17, 0), 4, 4)


@demo
def ids_behind_an_odd_list(variant):
    pair = Pair(variant, TableLayout((16,), (12,), 9, 32))
    for row in range(7):  # 7 intervals and 3 pieces are 9 words
        pair.append(row, [list(range(10 * row + 1, 10 * row + 2 + 2 * (row in (1, 4, 5))))], True)
    rows = (4, 0, 1)
    pair.step(i32(*rows), i32(0, 1, 2, 3), i64(20, 0, 40), 3, 3)


@demo
def empty_interval_as_one_id(variant):
    pair = Pair(variant, TableLayout((16, 8), (6, 6), 4, 16))
    batch = i32(2, 0), i32(0, 1, 2), i64(0, 0)
    pair.append(2, [[5, 6, 7], [8]], overwrite=True)
    pair.append(0, [[9], [10, 11]], overwrite=True)
    step = pair.capture(*batch, 2, 4)
    pair.append(2, [[], [12]], overwrite=True)
    pair.publish(step, 2, compare=False)
    pair.step(*batch, 2, 4)


@demo
def window_hides_new_ids(variant):
    pair = Pair(variant, TableLayout((4,), (40,), 4, 16, sliding_window_reach=(8,)))
    pair.append(2, [list(range(100, 130))], overwrite=True)
    computed = i32(0, 0, 60, 0)
    pair.step(i32(2), i32(0, 2), i64(60, 61), 1, 2, num_computed_tokens=computed)


@demo
def capacity_of_local_positions(variant):
    layout = TableLayout((4,), (3,), 4, 16, cp_size=2, cp_rank=0, cp_interleave=2)
    pair = Pair(variant, layout)
    pair.append(0, [[3, 4, 5]], overwrite=True)
    pair.append(1, [[6, 7]], overwrite=True)
    pair.apply()
    pair.both(i32(0, 1), i32(0, 4, 5), i64(20, 23, 24, 25, 5), 2, 8)


@demo
def pads_beyond_sixteen(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 3, 16 * 1024 + 300))
    pair.append(1, [[5]], overwrite=True)
    pair.poison(99)
    pair.step(i32(1), i32(0, 2), i64(0, 1), 1, 2)
