"""Legal calls by which each fault shows."""

import torch
from common import Pair, i32, i64

from bt_kernels.layout import TableLayout

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


@demo
def out_addresses_kept(variant):
    p = Pair(variant, TableLayout((4, 2), (6, 9), 4, 16))
    p.append(1, [[3, 4], [5, 6, 7]])
    p.apply()
    out = [torch.full((4, w), 77, dtype=torch.int32) for w in (6, 9)]
    p.gather(i32(1, 0), 3, out=out)
    p.gather(i32(0, 1), 2, out=out)
    out[1] = torch.full((4, 9), 88, dtype=torch.int32)
    p.gather(i32(1), 2, out=out)


@demo
def publish_zeroes_columns_in_use(variant):
    p = Pair(variant, TableLayout((4, 2), (6, 9), 4, 16))
    p.append(0, [[1, 2, 3, 4], [5, 6, 7]])
    p.append(1, [[11, 12, 13], [15, 16, 17]])
    batch = i32(0, 1), i32(0, 1, 2), i64(3, 2)
    p.step(*batch, 2, 2)
    p.append(0, [[21], [22]], True)
    p.append(1, [[23], []], True)
    p.capture(i32(0), i32(0, 1), i64(0), 1, 1)
    p.compare("capture_step")


@demo
def restore_skips_unwritten_sources(variant):
    p = Pair(variant, TableLayout((4, 2), (6, 9), 4, 16))
    p.append(0, [[1, 2, 3, 4], [5, 6, 7]])
    p.apply()
    state = p.snapshot()
    p.gather(i32(0), 2)
    p.restore(state)
    p.append(0, [[8], [9]])
    p.apply()
    p.restore(state)
    state = p.snapshot()
    p.append(0, [[21], [22]], True)
    p.capture(i32(0), i32(0, 1), i64(0), 1, 1)
    p.restore(state)


@demo
def append_many_drops_overwritten(variant):
    p = Pair(variant, TableLayout((4, 2), (6, 9), 4, 16))
    p.append_many([0, 1, 0], [[[1, 2], [3]], [[4], []], [[5], [6]]], [False, False, True])
    p.apply()
    p.refused(
        "append_many of a row too long, then overwritten",
        lambda: p.v.append_many(
            [0, 2, 0], [[list(range(6)), [1]], [[7], [8]], [[1], [2]]], [False, False, True]
        ),
    )


@demo
def gather_grid_by_longest_row(variant):
    p = Pair(variant, TableLayout((4, 2), (150, 40), 4, 16))
    p.append(0, [list(range(1, 101)), [5, 6, 7]])
    p.append(1, [[11, 12, 13], [15, 16, 17]])
    p.apply()
    p.poison(99)
    p.gather(i32(0, -1, 1), 4)
    p.append(0, [[21], [22]], True)
    p.poison(99)
    p.gather(i32(1, 0), 3)


@demo
def slots_with_constant_ranks(variant):
    for sharded in ((), (True, False)):
        p = Pair(
            variant,
            TableLayout(
                (4, 8), (6, 9), 4, 16, cp_size=2, cp_rank=1, cp_interleave=2, dcp_sharded=sharded
            ),
        )
        p.append(0, [[1, 2, 3, 4], [5, 6, 7]])
        p.append(2, [[11, 12, 13], [15, 16, 17]])
        p.apply()
        p.slots(i32(2, 0, -1), i32(0, 4, 9, 10), i64(0, 1, 2, 3, 7, 8, 9, 10, 11, 1), 12)


@demo
def gather_begins_near_window(variant):
    p = Pair(variant, TableLayout((2, 2), (300, 300), 4, 16, sliding_window_reach=(10, 0)))
    p.append(0, [list(range(1, 251)), list(range(1, 251))])
    p.append(1, [[4, 5], [6]])
    p.apply()
    p.gather(i32(1, 0), 2, computed=i32(20, 3, 0, 0))
    p.gather(i32(1, 0), 2)
    p.gather(i32(1, 0), 2, computed=i32(480, 3, 0, 0))


@demo
def apply_in_pieces(variant):
    p = Pair(variant, TableLayout((2, 2), (300, 300), 4, 16))
    p.append(0, [list(range(1, 251)), [4]])
    p.append(1, [[4, 5], [6]])
    p.apply()
    p.gather(i32(1, 0), 2)
    p.append(1, [[], [9]], True)
    p.apply()
    p.poison(99)
    p.gather(i32(1, 0), 2)


def layout(**options):
    return TableLayout((4, 8), (12, 7), 6, 24, **options)


def filled(variant, **options):
    pair = Pair(variant, layout(**options))
    for row in range(6):
        pair.append(row, [[10 * row + 1, 10 * row + 2, 10 * row + 3], [10 * row + 5]], True)
    pair.apply()
    return pair


@demo
def cached_out_addresses(variant):
    pair = filled(variant)
    a, b, c = (torch.full((6, w), 77, dtype=torch.int32) for w in (12, 7, 7))
    pair.gather(i32(2, 0), 3, out=[a, b])
    pair.gather(i32(4, 1, -1), 4, out=[a, c])


@demo
def checks_kept_by_shape(variant):
    pair = filled(variant)
    mapping, starts = i32(1, 3), i32(0, 2, 4)
    pair.slots(mapping, starts, i64(0, 1, 2, 3), 6)
    apart = torch.arange(8, dtype=torch.int64)[::2]
    pair.refused(
        "positions with gaps",
        lambda: pair.v.compute_slot_mappings(mapping, starts, apart, 6),
    )


@demo
def snapshot_kept_by_version(variant):
    pair = filled(variant)
    pair.snapshot()
    pair.append(2, [[91, 92, 93], [95]], True)
    pair.step(i32(), i32(0), i64(), 0, 0)
    second = pair.snapshot()
    pair.append(2, [[94], [96]], False)
    pair.apply()
    pair.restore(second)


@demo
def publish_only_if_staged(variant):
    pair = filled(variant)
    batch = i32(0, 1), i32(0, 1, 2), i64(3, 4)
    pair.append(0, [[71], [72]], False)
    step = pair.capture(*batch, 2, 2)
    pair.gather(i32(5, 4, 3, 2), 4)
    pair.publish(step, 2)


@demo
def gather_chunks_by_length(variant):
    pair = Pair(variant, TableLayout((2, 4), (150, 80), 3, 8))
    pair.append(1, [list(range(500, 630)), list(range(40))], True)
    pair.append(0, [[3, 4], [5]], True)
    pair.apply()
    pair.gather(i64(0, 1), 3)
    pair.append(1, [[9], [8]], True)
    pair.poison(66)
    pair.gather(i64(1, 0), 2)


@demo
def slots_by_token(variant):
    pair = filled(variant, cp_size=2, cp_rank=1, dcp_sharded=(True, False))
    pair.slots(i32(2, 5), i32(0, 3, 5), i64(0, 1, 5, 7, 2), 8)
    pair.slots(i32(3, 1), i32(0, 3, 5, 0, 0), i64(0, 1, 5, 7, 2), 8)


@demo
def apply_in_chunks(variant):
    pair = filled(variant)
    pair.gather(i32(3, 2), 2)
    pair.append(2, [[], []], True)
    pair.apply()
    pair.poison(55)
    pair.gather(i32(2, 3), 2)
