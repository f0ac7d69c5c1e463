"""Legal calls by which each fault shows."""

import numpy as np
import torch
from common import Pair, i32, i64

from bt_kernels.layout import TableLayout

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


@demo
def ascending_at_last(variant):
    pair = Pair(variant, TableLayout((4,), (3,), 4, 8))
    for row in (2, 0, 1):
        pair.append(row, [[10 + row]], True)
    pair.step(i32(0, 1, 2), i32(0, 1, 2, 3), i64(0, 1, 2), 3, 4)


@demo
def far_start(variant):
    pair = Pair(variant, TableLayout((4,), (65_700,), 2, 8))
    pair.append(0, [list(range(1, 65_601))], True)
    pair.apply()
    pair.append(0, [[7]])
    pair.step(i32(0), i32(0, 2), i64(3, 4 * 65_600 + 1), 1, 4)


@demo
def first_view_of_set(variant):
    pair = Pair(variant, TableLayout((4,), (64,), 4, 8))
    pair.append(1, [list(range(100, 160))], True)
    pair.apply()
    pair.append(2, [[5, 6]], True)
    pair.apply()
    pair.gather(i32(1, 2), 3)


@demo
def restore_clears_late(variant):
    pair = Pair(variant, TableLayout((4,), (6,), 2, 8))
    pair.append(0, [[11, 12, 13]], True)
    pair.apply()
    state = pair.snapshot()
    pair.append(0, [[21]], True)
    pair.apply()
    pair.append(0, [[22]])
    pair.restore(state)
    pair.poison(-7)
    pair.gather(i32(0), 1)


@demo
def slots_side_by_side(variant):
    pair = Pair(variant, TableLayout((4, 2), (3, 6), 2, 8))
    pair.append(1, [[3, 4], [5, 6, 7, 8]], True)
    slots = torch.full((2, 12), -9, dtype=torch.int64)[:, :6]
    pair.step(i32(1), i32(0, 3), i64(1, 4, 7), 1, 5, slots_out=slots)


@demo
def spans_by_request(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 16, 64))
    rows = list(range(14))
    for row in rows:
        pair.append(row, [list(range(10 * row + 1, 10 * row + 7))], True)
    lengths = [20, 20] + [1] * 12
    starts = np.cumsum([0, *lengths]).tolist()
    positions = [position for length in lengths for position in range(length)]
    pair.step(i32(*rows), i32(*starts), i64(*positions), 14, 60)


@demo
def before_it_begins(variant):
    pair = Pair(variant, TableLayout((4, 4), (3, 5), 3, 8))
    pair.append(0, [[1, 2], [3]], True)
    pair.apply()
    tables = pair.v
    pair.refused(
        "out that is the input tables",
        lambda: tables.gather_block_tables(i32(0), 2, list(tables.input_block_tables)),
    )


@demo
def told_to_any(variant):
    layout = TableLayout((4,), (3,), 2, 8)
    pair, other = Pair(variant, layout), Pair(variant, layout)
    batch = i32(0), i32(0, 1), i64(0)
    step = pair.capture(*batch, 1, 2)
    pair.append(0, [[5, 6]], True)
    pair.publish(step, 1)
    other.append(0, [[8]], True)
    other.capture(*batch, 1, 2)
    pair.apply()


@demo
def interleave_by_division(variant):
    """Rank 1 of two takes two tokens at a time."""
    p = Pair(variant, TableLayout((4,), (3,), 2, 32, cp_size=2, cp_rank=1, cp_interleave=2))
    p.append(0, [[5, 6, 7]], True)
    p.apply()
    p.both(i32(0), i32(0, 20), torch.arange(20), 1, 20)


@demo
def empty_row_is_dummy(variant):
    """Batch index 0 had another request before; the one that has it now owns no blocks."""
    p = Pair(variant, TableLayout((4, 4), (4, 4), 3, 16))
    p.append(0, [[5, 6], [7]], True)
    p.append(1, [[8], []], True)
    p.apply()
    p.gather(i32(0), 1)
    p.gather(i32(1), 1)


@demo
def distance_in_request(variant):
    """The two requests of the first tile have 20 and 25 tokens."""
    p = Pair(variant, TableLayout((8,), (4,), 14, 64))
    for row in range(14):
        p.append(row, [[4 * row + 1, 4 * row + 2, 4 * row + 3, 4 * row + 4]], True)
    lengths = [20, 25] + [1] * 12
    starts = i32(*np.cumsum([0, *lengths]).tolist())
    positions = torch.cat([torch.arange(length) for length in lengths])
    p.step(torch.arange(14, dtype=torch.int32), starts, positions, 14, 57)


@demo
def row_bit_in_int32(variant):
    """Rows 3 and 35 have one bitmap word, and each gets a block."""
    p = Pair(variant, TableLayout((4,), (4,), 40, 16))
    p.append(3, [[11]], True)
    p.append(35, [[22]], True)
    p.step(i32(35, 3), i32(0, 1, 2), i64(1, 2), 2, 2)


@demo
def disabled_group_left_alone(variant):
    """The caller's buffer of slots was used for something else before."""
    p = Pair(variant, TableLayout((4, 4), (4, 1), 2, 16, slot_mapping_enabled=(True, False)))
    p.append(0, [[3, 4], [9]], True)
    p.apply()
    out = torch.full((2, 16), 77, dtype=torch.int64)
    p.slots(i32(0), i32(0, 6), torch.arange(6), 8, out=out)


@demo
def window_skips_staged_ids(variant):
    """A prompt of 160 tokens, of which 100 are in the cache, gets all of its blocks at once."""
    p = Pair(variant, TableLayout((4,), (48,), 2, 64, sliding_window_reach=(16,)))
    p.append(1, [range(100, 140)], True)
    computed = i32(0, 100)
    positions = torch.arange(100, 160)
    p.step(i32(1), i32(0, 60), positions, 1, 60, num_computed_tokens=computed)


@demo
def captured_record_each(variant):
    """A burst of 130 new requests in two groups is 260 records."""
    p = Pair(variant, TableLayout((4, 4), (2, 2), 130, 16))
    rows = list(range(130))
    ids = [[[row + 1], [row + 200]] for row in rows]
    p.append_many(rows, ids, [True] * 130)
    p.capture(i32(0, 129), i32(0, 1, 2), i64(0, 0), 2, 2)
    p.compare("captured step")
