"""Legal calls by which each fault shows."""

import torch
from common import Pair, i32, i64

from bt_kernels.layout import TableLayout

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


@demo
def compaction_of_pieces(variant):
    p = Pair(variant, TableLayout((16,), (40,), 4, 16))
    p.append(0, [[5, 6]])
    p.append(1, [[7]])
    p.append(0, [[8, 9, 10]])
    for k in range(40):
        p.append(2, [list(range(100 * k, 100 * k + 30))], True)
    p.apply()
    p.gather(i32(0, 1, 2), 3)


@demo
def ordered_words_of_groups(variant):
    p = Pair(variant, TableLayout((16, 8), (4, 6), 60, 16))
    rows = [3, 50]
    p.append_many(rows, [[[10 + r], [200 + r]] for r in rows], [False] * 2)
    p.step(i32(3, 50), i32(0, 1, 2), i64(0, 3), 2, 2)


@demo
def captured_room_without_header(variant):
    p = Pair(variant, TableLayout((16,), (8,), 4, 16))
    step = p.capture(i32(0), i32(0, 1), i64(0), 1, 1)
    p.append_many([0, 1, 2, 3], [[[1, 2]], [[3, 4]], [[5]], [[6]]], [True] * 4)
    p.publish(step, 1, compare=False)
    p.step(i32(0, 1, 2, 3), i32(0, 1, 2, 3, 4), i64(0, 1, 2, 3), 4, 4)


@demo
def listed_ids_alignment(variant):
    p = Pair(variant, TableLayout((16,), (8,), 16, 16))
    p.append_many(
        list(range(8)),
        [[[10 * r + k for k in range(3 if r in (2, 6) else 1)]] for r in range(8)],
        [True] * 8,
    )
    p.step(i32(2, 6, 0), i32(0, 1, 2, 3), i64(20, 33, 4), 3, 3)
    p.append_many([1, 2, 3, 4, 5], [[[r, r + 1]] for r in range(5)], [True] * 5)
    p.step(i32(2, 6, 0), i32(0, 1, 2, 3), i64(20, 33, 4), 3, 3)


@demo
def slots_out_stride(variant):
    p = Pair(variant, TableLayout((16, 8), (4, 6), 4, 16))
    p.append(1, [[3, 4], [5, 6, 7]], True)
    slots = torch.full((2, 24), -7, dtype=torch.int64)[:, :12]
    p.step(i32(1), i32(0, 3), i64(0, 9, 17), 2, 4, slots_out=slots)


@demo
def out_reaches_into_table(variant):
    p = Pair(variant, TableLayout((16,), (4,), 4, 16))
    p.append(0, [[1, 2]])
    p.apply()
    memory = torch.zeros(64, dtype=torch.int32)
    p.v.input_block_tables[0] = memory[16:32].view(4, 4)
    p.v.init_block_table_layout_tensors()
    p.addresses = p._addresses()
    p.gather(i32(0), 1, out=[memory[:16].view(4, 4)])
    out = [memory[8:24].view(4, 4)]
    p.refused("overlap", lambda: p.v.gather_block_tables(i32(0), 4, out=out))


@demo
def restore_counts_staged_rows(variant):
    p = Pair(variant, TableLayout((16, 8), (4, 6), 4, 16))
    p.append(0, [[1, 2, 3], [4, 5]])
    p.apply()
    state = p.snapshot()
    p.append(0, [[9], [8]], True)
    p.apply()
    p.append(0, [[7], [6]])
    p.restore(state)
    p.gather(i32(0), 1)


@demo
def window_alone_is_no_option(variant):
    p = Pair(variant, TableLayout((16, 8), (4, 6), 4, 16, sliding_window_reach=(16, 0)))
    p.append(0, [[1, 2, 3], [4, 5]])
    p.step(i32(0), i32(0, 1), i64(40), 1, 1, num_computed_tokens=i32(40, 0, 0, 0))


@demo
def byte_of_intervals_before(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 300, 64))
    rows = list(range(300))
    pair.append_many(rows, [[[1000 + row]] for row in rows], [False] * 300)
    pair.step(i32(299, 3), i32(0, 2, 4), i64(0, 1, 5, 6), 2, 8)


@demo
def no_ids_taken_for_one(variant):
    pair = Pair(variant, TableLayout((16,), (8,), 4, 32))
    pair.append(1, [[5, 6, 7]])
    pair.step(i32(1), i32(0, 2), i64(0, 40), 1, 4)
    pair.append(1, [[]], overwrite=True)
    pair.step(i32(1, 2), i32(0, 1, 2), i64(3, 4), 2, 4)


@demo
def left_by_lower_halves(variant):
    pair = Pair(variant, TableLayout((16,), (64,), 4, 32))
    pair.append(0, [[9]])
    pair.append(1, [list(range(100, 140))])
    pair.step(i64(0, 2**32 + 1), i32(0, 1, 3), i64(2, 3, 4), 2, 4)


@demo
def window_skips_blocks(variant):
    layout = TableLayout((1,), (3000,), 3, 32, sliding_window_reach=(10,))
    pair = Pair(variant, layout)
    pair.append(1, [list(range(1, 2901))])
    pair.apply()
    pair.poison(77)
    pair.gather(i32(1), 1, computed=i32(0, 2800, 0))


@demo
def local_position_of_int32(variant):
    layout = TableLayout((2**30,), (6,), 3, 32, cp_size=2, cp_rank=0, cp_interleave=2)
    pair = Pair(variant, layout)
    pair.append(1, [[11, 12, 13, 14]])
    pair.step(i32(1), i32(0, 4), i64(0, 5, 2**32 + 4, 2**32 + 6), 1, 4)


@demo
def marks_without_a_step(variant):
    pair = Pair(variant, TableLayout((16,), (8,), 3, 32))
    pair.append(1, [[5, 6, 7]])
    pair.apply()
    pair.poison(99)
    pair.step(i32(1), i32(0, 2), i64(0, 40), 1, 4)


@demo
def pads_of_first_chunk(variant):
    pair = Pair(variant, TableLayout((16,), (128,), 2, 18_000))
    pair.append(0, [list(range(1, 101))])
    pair.step(i32(0), i32(0, 4), i64(0, 1, 2, 3), 1, 8)
    pair.poison(5)
    pair.step(i32(0), i32(0, 1100), torch.arange(1100), 1, 1100)
