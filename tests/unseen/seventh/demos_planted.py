"""Legal calls by which each planted fault shows."""

import numpy as np
import torch
from common import Pair, i32, i64

from bt_kernels.layout import TableLayout

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


def starts_of(*lengths):
    return torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32)


def counting(*lengths):
    """Positions of requests that begin at 0."""
    return torch.cat([torch.arange(n, dtype=torch.int64) for n in lengths])


@demo
def empty_overwrite_uncounted(variant):
    p = Pair(variant, TableLayout((4, 8), (6, 3), 3, 16))
    p.append(1, [[3, 4, 5], [6]], True)
    p.apply()
    p.append(1, [[], [7]], True)
    p.apply()
    p.gather(i32(1), 2)


@demo
def window_skips_blocks(variant):
    p = Pair(variant, TableLayout((2,), (1100,), 2, 8, sliding_window_reach=(4,)))
    p.append(0, [range(1, 1081)], True)
    p.apply()
    p.poison(77)
    p.gather(i32(0), 1, computed=i32(2120, 0))


@demo
def long_interval_sign(variant):
    p = Pair(variant, TableLayout((1,), (33000,), 2, 8))
    p.append(1, [range(5, 5 + 32768)], True)
    p.step(i32(1), starts_of(2), i64(0, 32767), 1, 4)


@demo
def hidden_ids_unwritten(variant):
    p = Pair(variant, TableLayout((4,), (40,), 3, 8, sliding_window_reach=(8,)))
    p.append(2, [range(1, 31)], True)
    computed = i32(0, 0, 100)
    p.step(i64(2), starts_of(1), i64(100), 2, 2, num_computed_tokens=computed)


@demo
def bisection_short(variant):
    p = Pair(variant, TableLayout((16,), (12,), 4, 512))
    p.append(0, [range(1, 11)], True)
    p.append(1, [range(21, 31)], True)
    p.step(i32(0, 1), starts_of(150, 150), counting(150, 150), 2, 320)


@demo
def span_own_begin(variant):
    p = Pair(variant, TableLayout((4,), (16,), 16, 512))
    for row in range(14):
        p.append(row, [range(20 * row + 1, 20 * row + 11)], True)
    p.apply()
    lengths = (20, 40) + (1,) * 12
    p.step(torch.arange(14, dtype=torch.int32), starts_of(*lengths), counting(*lengths), 14, 100)


@demo
def pad_remainder(variant):
    p = Pair(variant, TableLayout((4,), (8,), 2, 2050))
    p.append(0, [[3, 4]], True)
    p.poison(55)
    p.step(i64(0), starts_of(5), counting(5), 1, 8)


@demo
def fresh_once(variant):
    p = Pair(variant, TableLayout((4, 4), (700, 8), 8, 16))
    for row in range(7):
        p.append(row, [range(1, 601) if row == 3 else [row], [9]], True)
    p.step(i32(0, 1, 2, 3, 4, 5, 6), starts_of(*(1,) * 7), i64(*(0,) * 7), 8, 8)


@demo
def wide_rows_wrap(variant):
    p = Pair(variant, TableLayout((4,), (6,), 3, 8))
    p.append(1, [[5, 6]], True)
    p.append(2, [[7]], True)
    p.step(i64(2, 2**32 + 1), starts_of(1, 2), i64(0, 3, 4), 2, 4)


@demo
def captured_records_once(variant):
    p = Pair(variant, TableLayout((4, 2), (3, 2), 140, 16))
    for row in range(135):
        p.append(row, [[row + 1], [row + 500]], True)
    p.capture(i32(134, 0), starts_of(1, 1), i64(0, 1), 2, 4)
    p.compare("captured step")


@demo
def negative_ids_padded(variant):
    p = Pair(variant, TableLayout((4,), (6,), 3, 8))
    p.append(1, [[5, -(2**31), -7]], True)
    p.apply()
    p.both(i32(1), starts_of(3), i64(0, 5, 9), 1, 4)


@demo
def ranks_power_of_two(variant):
    layout = TableLayout((4,), (6,), 3, 64, cp_size=3, cp_rank=1, cp_interleave=2)
    p = Pair(variant, layout)
    p.append(0, [[5, 9, 2]], True)
    p.step(i32(0), starts_of(36), counting(36), 1, 40)


@demo
def step_number_kept(variant):
    p = Pair(variant, TableLayout((4,), (6,), 3, 8))
    batch = i32(0), starts_of(1), i64(0), 1, 4
    p.append(0, [[5]], True)
    p.step(*batch)
    p.append(0, [[8]], True)
    p.apply()
    p.step(*batch)
    p.step(*batch)


@demo
def discarded_comes_back(variant):
    p = Pair(variant, TableLayout((4,), (6,), 3, 8))
    p.append(0, [[5, 6]], True)
    step = p.capture(i32(0), starts_of(1), i64(0), 1, 4)
    p.compare("captured step")
    state = p.snapshot()
    p.append(0, [[7, 8, 9]], True)
    p.publish(step, 1)
    p.restore(state)
    p.apply()
    p.gather(i32(0), 1)


@demo
def targets_left(variant):
    p = Pair(variant, TableLayout((4, 2), (6, 5), 3, 8))
    p.append(0, [[5, 6], [3]], True)
    batch = i32(0), starts_of(2), i64(0, 4), 2, 4
    out = [torch.full((2, width), 9, dtype=torch.int32) for width in (6, 5)]
    p.step(*batch, out=out)
    p.append(0, [[7], [4]], False)
    slots = torch.full((2, 6), 9, dtype=torch.int64)
    p.step(*batch, slots_out=slots)
