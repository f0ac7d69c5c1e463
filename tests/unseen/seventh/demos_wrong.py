"""Legal calls by which each wrong fault shows."""

import torch
from common import Pair, i32, i64

from bt_kernels.layout import TableLayout

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


def _layout(**options):
    return TableLayout((4, 8), (12, 6), 6, 64, **options)


@demo
def gather_tiles(variant):
    p = Pair(variant, TableLayout((4,), (200,), 6, 32))
    for row in range(4):
        p.append(row, [range(10 * row, 10 * row + 5)], True)
    p.append(4, [range(1000, 1150)], True)
    p.apply()
    p.gather(i32(0, 4, 2, 3), 4)
    p.gather(i32(0, -1, 2, 3), 4)


@demo
def slots_search(variant):
    p = Pair(variant, _layout())
    for row in range(4):
        p.append(row, [[10 + row, 20 + row], [30 + row]], True)
    p.apply()
    p.slots(i64(2, 0, 3), i32(0, 3, 3, 5), i64(0, 1, 2, 4, 5), 8)


@demo
def apply_flat(variant):
    p = Pair(variant, _layout())
    p.append(1, [[5, 6, 7], [8, 9]], True)
    p.apply()
    p.gather(i32(1), 1)
    p.append(1, [[11], []], True)
    p.apply()
    p.poison(77)
    p.gather(i32(1), 1)


@demo
def gather_skips_window(variant):
    p = Pair(variant, TableLayout((4,), (400,), 3, 32, sliding_window_reach=(16,)))
    p.append(0, [range(1, 351)], True)
    p.apply()
    p.gather(i32(0), 1)
    p.gather(i32(0), 1, computed=i32(1300, 0, 0))


@demo
def slots_reciprocal(variant):
    p = Pair(variant, TableLayout((1024,), (8200,), 2, 16))
    p.append(1, [range(8300, 100, -1)], True)
    p.apply()
    end = 1024 * 8196
    p.both(i64(1), i32(0, 4), i64(end - 2, end - 1, end, end + 1), 1, 4)


@demo
def step_rows(variant):
    p = Pair(variant, _layout())
    p.append(0, [[5, 6, 7], [8, 9]], True)
    p.append(2, [[15], [18]], True)
    p.step(i32(2, 0), i32(0, 1, 3), i64(2, 0, 9), 3, 4)
    p.append(0, [[3], [4]], True)
    p.step(i32(2, 0), i32(0, 1, 3), i64(2, 1, 9), 3, 4)


@demo
def gather_pairs(variant):
    p = Pair(variant, _layout())
    p.append(0, [[5, 6, 7, 8], [9]], True)
    p.append(1, [[1, 2, 3], [4]], True)
    p.apply()
    p.gather(i32(0), 1)
    p.gather(i32(1), 1)


@demo
def captured_programs(variant):
    p = Pair(variant, _layout())
    for row in range(6):
        p.append(row, [[row + 1], [row + 40]], True)
    p.capture(i32(3, 4, 5), i32(0, 1, 2, 3), i64(0, 1, 2), 3, 4)
    p.compare("captured step")


@demo
def out_cached(variant):
    p = Pair(variant, _layout())
    p.append(0, [[5, 6], [7]], True)
    p.apply()
    first = [torch.full((4, width), 9, dtype=torch.int32) for width in (12, 6)]
    out = list(first)
    p.gather(i32(0), 1, out=out)
    out[1] = torch.full((4, 6), 8, dtype=torch.int32)
    p.gather(i32(0), 1, out=out)
    assert len(first) == 2


@demo
def gather_unchanged(variant):
    p = Pair(variant, _layout())
    p.append(0, [[5, 6], [7]], True)
    p.append(3, [[1], [2]], True)
    p.apply()
    mapping = i32(3, 0)
    p.gather(mapping, 2)
    p.dummy_tables(2)
    p.gather(mapping, 2)


@demo
def apply_idle(variant):
    p = Pair(variant, _layout())
    p.append(0, [[5, 6], [7]], True)
    step = p.capture(i32(0), i32(0, 1), i64(0), 2, 2)
    p.append(0, [[8], [9]], False)
    p.publish(step, 2)
    p.apply()


@demo
def redirect_on_apply(variant):
    p = Pair(variant, _layout())
    p.redirect(True)
    p.append(0, [[5, 6], [7]], True)
    p.redirect(False)
    p.append(1, [[8], [9]], True)
    p.apply()


@demo
def shared_lists(variant):
    p = Pair(variant, _layout())
    ids = [5, 6]
    p.append(0, [ids, ids], True)
    p.append(0, [[7], [8]], False)
    p.apply()


@demo
def many_checked(variant):
    p = Pair(variant, _layout())
    p.append(2, [[1, 2], [3]], True)
    p.refused(
        "append_many",
        lambda: p.v.append_many([2, 2], [[[4], [5, 6, 7]], [[4], [5, 6, 7]]], [False, False]),
    )


@demo
def snapshot_live(variant):
    p = Pair(variant, _layout())
    p.append(0, [[5, 6], [7]], True)
    p.apply()
    state = p.snapshot()
    p.append(0, [[8], [9]], False)
    p.apply()
    p.restore(state)
