"""Legal calls by which each planted fault shows."""

from bt_kernels.layout import TableLayout
from common import Differs, Pair, i32, i64

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


import numpy as np  # noqa: E402
import torch  # noqa: E402


@demo
def uniform_decode_slots(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.append(0, [[5, 6]], True)
    pair.append(1, [[7, 8]], True)
    pair.step(i64(0, 1), i32(0, 1, 2), i64(3, 4), 2, 4)
    pair.step(i64(0, 1), i32(0, 2, 2), i64(3, 4), 2, 4)


@demo
def gather_by_source_row(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.append(2, [[5, 6]], True)
    pair.apply()
    pair.gather(i64(1, 2, -1), 4)
    pair.gather(i64(2, 0, 2), 3)


@demo
def disabled_groups_unpadded(variant):
    pair = Pair(variant, TableLayout((4, 4), (8, 1), 4, 16, slot_mapping_enabled=(True, False)))
    pair.append(0, [[5, 6], [3]], True)
    pair.step(i64(0), i32(0, 2), i64(3, 4), 2, 4)
    out = torch.full((2, 8), 77, dtype=torch.int64)
    pair.step(i64(0), i32(0, 2), i64(3, 4), 2, 4, slots_out=out)


@demo
def null_ids_unread(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.redirect(True)
    pair.append(0, [[5, 6]], True)
    pair.refused("no list", lambda: pair.v.append_block_ids(0, [7], False))
    pair.refused("large id", lambda: pair.v.append_block_ids(0, [[2**31]], False))


@demo
def validate_whole_starts(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.v.validate = True
    pair.append(0, [[5, 6]], True)
    starts = i32(0, 1, 2, 3, 4)
    pair.step(i64(0, 1, 2, 3), starts, i64(0, 1, 2, 3), 4, 4)
    starts[:2] = i32(0, 3)  # a smaller batch, in the same buffer
    pair.step(i64(0), starts, i64(3, 4, 5), 4, 4)


@demo
def out_list_identity(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.append(0, [[5, 6]], True)
    pair.apply()
    first, second = (
        torch.full((2, 8), 7, dtype=torch.int32),
        torch.full((2, 8), 7, dtype=torch.int32),
    )
    out = [first]
    pair.gather(i64(0), 1, out)
    pair.gather(i64(0), 1, out)
    out[0] = second
    pair.gather(i64(0), 1, out)


@demo
def lazy_snapshot(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.append(0, [[5, 6]], True)
    pair.apply()
    before = pair.snapshot()
    pair.append(0, [[8, 9, 10]], True)
    pair.apply()
    after = pair.snapshot()
    pair.restore(before)
    pair.restore(after)


@demo
def cp_shift_unsharded(variant):
    layout = TableLayout(
        (8, 12), (4, 4), 4, 32, cp_size=2, cp_rank=1, cp_interleave=2, dcp_sharded=(True, False)
    )
    pair = Pair(variant, layout)
    pair.append(0, [[5, 6], [7, 8]], True)
    pair.step(i64(0), i32(0, 8), torch.arange(8), 1, 8)
    pair.step(i64(0), i32(0, 16), torch.arange(4, 20), 1, 16)


@demo
def narrow_product(variant):
    pair = Pair(variant, TableLayout((16,), (8,), 4, 16))
    pair.append(0, [[-1, 2**31 - 1]], True)
    pair.step(i64(0), i32(0, 2), i64(3, 16), 1, 2)
    pair.append(1, [[-1, -(2**28)]], True)
    pair.step(i64(1), i32(0, 2), i64(3, 16), 1, 2)


@demo
def publish_keeps_dirty(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 8, 16))
    for row in range(4):
        pair.append(row, [[5 + row]], True)
    step = pair.capture(i64(0, 1, 2, 3), i32(0, 1, 2, 3, 4), i64(0, 0, 0, 0), 4, 4)
    pair.gather(i64(0), 1)
    pair.publish(step, 4, compare=False)
    pair.poison(9)  # as a replay fills its rows
    for t in (pair.v, pair.r):
        t.input_block_tables[0][4:] = 0
    pair.gather(i64(0), 1)


@demo
def packed_start_halfword(variant):
    pair = Pair(variant, TableLayout((1,), (65_600,), 3, 16))
    pair.append(0, [list(range(65_530))], True)
    pair.apply()
    pair.append(0, [[-i for i in range(10)]])
    pair.apply()
    pair.append(0, [[77]])
    pair.apply()


@demo
def count_epoch_byte(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    for number in range(260):
        pair.append(number % 4, [[number, number + 1][: 1 + number // 4 % 2]], True)
        pair.apply()
        if number > 250:
            pair.gather(i64(0, 1, 2, 3), 4)


@demo
def mapping_version_memo(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.append(0, [[5, 6]], True)
    pair.append(1, [[7, 8]], True)
    pair.apply()
    rows = np.array([0, 1])
    mapping = torch.from_numpy(rows)
    pair.gather(mapping, 2)
    rows[:] = [1, 0]
    pair.gather(mapping, 2)


@demo
def shared_window_scratch(variant):
    layout = TableLayout((4,), (8,), 4, 16, sliding_window_reach=(4,))
    one, other = Pair(variant, layout), Pair(variant, layout)
    for pair in (one, other):
        pair.append(0, [[5, 6, 7, 8]], True)
        pair.apply()
    far, near = i32(14, 0, 0, 0), i32(2, 0, 0, 0)
    one.gather(i64(0), 1, computed=far)
    one.gather(i64(0), 1, computed=near)
    other.gather(i64(0), 1, computed=far)
    one.gather(i64(0), 1, computed=near)


@demo
def token_search_block(variant):
    pair = Pair(variant, TableLayout((4,), (2,), 300, 300))
    rows = list(range(300))
    pair.append_many(rows, [[[1000 + row]] for row in rows], [True] * 300)
    for num in (256, 300):
        starts = torch.arange(num + 1, dtype=torch.int32)
        pair.poison(3)
        pair.step(torch.arange(num), starts, torch.arange(num) % 4, num, num)
