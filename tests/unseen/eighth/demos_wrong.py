"""Legal calls by which each fault shows."""

import numpy as np
import torch
from bt_kernels.layout import TableLayout
from common import Differs, Pair, i32, i64

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


SMALL = TableLayout((4, 2), (6, 9), 5, 16)


@demo
def apply_last_tile_counts(variant):
    pair = Pair(variant, SMALL)
    pair.append(1, [[3, 4], [5]])
    pair.append(2, [[6], [7, 8]])
    pair.apply()
    pair.append(1, [[], [9]], True)
    pair.apply()
    pair.gather(i32(2, 1), 2)


@demo
def apply_grid_kept(variant):
    for widths in ((6, 9), (200, 150)):
        pair = Pair(variant, TableLayout((4, 2), widths, 5, 16))
        for row in (0, 3):
            pair.append(row, [range(1, widths[0]), range(5, 5 + widths[1])])
        pair.apply()


@demo
def append_many_looks_first(variant):
    pair = Pair(variant, SMALL)
    pair.append_many([1, 2], [[[1, 2], [3]], [[4], [5]]], [False, False])
    pair.step(i32(1, 2), i32(0, 1, 2), i64(0, 1), 2, 2)
    pair.refused(
        "a row twice that gets too wide",
        lambda: pair.v.append_many(
            [1, 2, 1], [[[7, 8], []], [[9], []], [[1, 2, 3], []]], [False, False, False]
        ),
    )


@demo
def converts_arrays_once(variant):
    pair = Pair(variant, SMALL)
    ids = np.array([3, 4], np.int32)
    pair.append(1, [ids, [5]])
    pair.apply()
    ids[:] = 7, 8
    pair.append(1, [ids, []])
    pair.apply()


@demo
def arrays_as_int32(variant):
    pair = Pair(variant, SMALL)
    pair.append(1, [np.array([3, 2**31 - 1]), [5]])
    pair.apply()
    pair.refused(
        "an id that does not fit",
        lambda: pair.v.append_block_ids(1, [np.array([4, 2**31]), [5]], False),
    )


@demo
def redirects_when_packed(variant):
    pair = Pair(variant, SMALL)
    pair.redirect(True)
    pair.append(1, [[3, 4], [5]])
    pair.apply()
    pair.append(2, [[3, 4], [5]])
    pair.redirect(False)
    pair.append(3, [[6], [7]])
    pair.apply()


@demo
def publishes_only_writes(variant):
    pair = Pair(variant, SMALL)
    batch = i32(1, 2), i32(0, 1, 2), i64(0, 1), 2, 2
    pair.append(1, [[3, 4], [5]])
    pair.capture(*batch)
    pair.compare("a captured step")
    pair.append(1, [[6, 7], [8]], True)
    pair.step(*batch)
    pair.capture(*batch)
    pair.compare("a captured step without writes")


@demo
def restore_keeps_counts(variant):
    pair = Pair(variant, SMALL)
    pair.append(1, [[3, 4], [5]])
    pair.step(i32(1), i32(0, 1), i64(0), 1, 1)
    pair.append(2, [[6], [7, 8]])
    pair.poison(77, source=True)
    pair.restore(pair.snapshot())
    pair.poison(99)
    pair.gather(i32(1, 2), 2)


@demo
def window_in_two_loops(variant):
    pair = Pair(variant, TableLayout((4, 2), (8, 8), 4, 16, sliding_window_reach=(4, 0)))
    pair.append(0, [[11, 12, 13, 14, 15], [1, 2]], True)
    pair.append(1, [[21, 22], [3]], True)
    pair.apply()
    pair.gather(i32(0, 1), 3, computed=i32(12, 8, 0, 0))
    pair.poison(7)
    pair.gather(i32(1, -1), 2, computed=i32(0, 24, 0, 0))


@demo
def blocks_in_turn(variant):
    layout = TableLayout((2, 4), (4, 2), 2, 20, cp_size=2, cp_rank=1, cp_interleave=2)
    pair = Pair(variant, layout)
    pair.append(1, [[5, 6, 7, 8], [9, 10]], True)
    pair.apply()
    pair.slots(i32(1), i32(0, 16), torch.arange(16), 18)


@demo
def dummies_once(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 4, 8))
    pair.dummy_tables(4)
    pair.poison(3)
    pair.dummy_tables(2)


@demo
def kept_out_ptrs(variant):
    pair = Pair(variant, TableLayout((4, 4), (3, 4), 4, 8))
    pair.append(0, [[1, 2], [3]], True)
    pair.append(1, [[4], [5, 6]], True)
    pair.apply()
    out = [torch.full((2, width), 9, dtype=torch.int32) for width in (3, 4)]
    pair.gather(i32(0), 1, out=out)
    kept = out[1]
    out[1] = torch.full((2, 4), 9, dtype=torch.int32)
    pair.gather(i32(1, 0), 2, out=out)
    del kept


@demo
def step_checks_late(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 4, 8))
    pair.append(0, [[1, 2]], True)
    pair.step(i32(0), i32(0, 2), i64(0, 5), 1, 2)
    pair.append(0, [[3]], False)
    arguments = (i32(0), i32(0, 1), i64(8), 1, 9)
    pair.refused("prepare_step past the slots", lambda: pair.v.prepare_step(*arguments))


@demo
def gather_as_long(variant):
    pair = Pair(variant, TableLayout((4, 4), (200, 3), 3, 8))
    pair.append(0, [list(range(1, 191)), [1]], True)
    pair.append(1, [[7], [2, 3]], True)
    pair.apply()
    pair.gather(i64(0, -1, 1), 3)
    pair.append(0, [[5, 6], [4]], True)
    pair.poison(77)
    pair.gather(i64(0, 1), 3)


@demo
def slots_of_decodes(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 4, 8))
    pair.append(0, [[1, 2]], True)
    pair.append(1, [[3, 4]], True)
    pair.apply()
    pair.slots(i32(0, 1, -1), i32(0, 1, 2, 3), i64(5, 2, 0), 4)
    pair.slots(i32(0, 1, -1), i32(0, 1, 3, 3), i64(5, 2, 3), 4)
