"""Legal calls by which each fault shows."""

import torch
from common import Pair, i32, i64

from bt_kernels.layout import TableLayout

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


def two_groups(**options):
    return TableLayout((4, 6), (8, 5), 6, 24, **options)


@demo
def checks_once_per_shape(variant):
    pair = Pair(variant, two_groups())
    pair.append(0, [[3, 4], [5]])
    pair.apply()
    pair.slots(i32(0), i32(0, 3), i64(0, 1, 5), 3)
    strided = i64(0, 9, 1, 9, 5, 9)[::2]
    pair.refused(
        "strided positions",
        lambda: pair.v.compute_slot_mappings(i32(0), i32(0, 3), strided, 3),
    )


@demo
def publish_when_staged(variant):
    pair = Pair(variant, two_groups())
    for row in range(4):
        pair.append(row, [[row + 1, row + 2], [row + 5]])
    pair.apply()
    step = pair.capture(i32(0, 1), i32(0, 1, 2), i64(0, 1), 2, 2)
    pair.compare("capture")
    pair.gather(i32(3, 2, 1, 0), 4)
    pair.publish(step, 2)


@demo
def out_addresses_kept(variant):
    pair = Pair(variant, two_groups())
    pair.append(1, [[3, 4], [5]])
    pair.apply()
    first, second, other = (torch.full((4, w), 7, dtype=torch.int32) for w in (8, 5, 5))
    pair.gather(i32(1), 2, out=[first, second])
    pair.gather(i32(1), 2, out=[first, other])


@demo
def append_many_merged(variant):
    pair = Pair(variant, two_groups())
    pair.append_many([0, 1, 0], [[[1], [2]], [[3], []], [[4, 5], [6]]], [False, False, False])
    pair.append_many([0, 1, 0], [[[1], [2]], [[3], []], [[4, 5], [6]]], [False, False, True])
    pair.apply()
    pair.refused(
        "a row too wide, overwritten later",
        lambda: pair.v.append_many([2, 2], [[[1] * 9, []], [[1], [2]]], [False, True]),
    )


@demo
def sharded_slots_by_masks(variant):
    pair = Pair(variant, two_groups(cp_size=3, cp_rank=1, cp_interleave=2))
    pair.append(2, [[9, 3, 4], [5, 8]])
    pair.apply()
    pair.slots(i32(2), i32(0, 20), i64(*range(20)), 20)


@demo
def gather_in_chunks(variant):
    layout = TableLayout((4, 4), (160, 150), 4, 8, sliding_window_reach=(8, 0))
    pair = Pair(variant, layout)
    pair.append(0, [list(range(1, 141)), list(range(1, 141))])
    pair.apply()
    pair.gather(i32(0), 2)
    pair.gather(i32(0), 2, computed=i32(500, 0, 0, 0))


@demo
def apply_in_pieces(variant):
    pair = Pair(variant, two_groups())
    pair.append(0, [[3, 4], [5]])
    pair.append(1, [[6], [7]])
    pair.apply()
    pair.gather(i32(0, 1), 2)
    pair.append(0, [[], [8]], overwrite=True)
    pair.apply()
    pair.gather(i32(1, 0), 2)


@demo
def pads_to_last_tokens(variant):
    pair = Pair(variant, two_groups())
    pair.append(0, [[3, 4], [5]])
    pair.apply()
    pair.slots(i32(0), i32(0, 6), i64(*range(6)), 8)
    state = pair.snapshot()
    pair.slots(i32(0), i32(0, 2), i64(0, 1), 2)
    pair.restore(state)
    pair.slots(i32(0), i32(0, 2), i64(0, 1), 2)


@demo
def out_pointer_cache(variant):
    layout = TableLayout((16, 8), (6, 9), 5, 64)
    p = Pair(variant, layout)
    p.append(1, [[3, 4], [7, 8, 9]])
    p.append(3, [[5], [6, 2]])
    p.apply()
    first, a, b = (torch.full((4, w), -7, dtype=torch.int32) for w in (6, 9, 9))
    p.gather(i32(1, 3), 3, out=[first, a])
    p.gather(i32(3, 1), 3, out=[first, a])
    p.gather(i32(1, 3), 3, out=[first, b])


@demo
def shared_snapshots(variant):
    p = Pair(variant, TableLayout((16, 8), (6, 9), 5, 64))
    p.append(1, [[3, 4], [7, 8, 9]])
    p.apply()
    a = p.snapshot()
    p.append(1, [[11, 12], [13]])
    p.append(2, [[5], []], overwrite=True)
    p.apply()
    b = p.snapshot()
    p.restore(a)
    c = p.snapshot()
    p.restore(b)
    p.restore(c)


@demo
def append_many_checked_first(variant):
    p = Pair(variant, TableLayout((16, 8), (6, 9), 5, 64))
    p.append(1, [[3, 4], [7, 8, 9]])
    p.apply()
    p.append_many([1, 2], [[[5], [6]], [[8, 9], []]], [False, True])
    p.refused(
        "append_many past the width",
        lambda: p.v.append_many([3, 3], [[[1, 2, 3, 4], [1]], [[5, 6, 7], [2]]], [False, False]),
    )
    p.append_many([1, 1], [[[9], [9]], [[1, 2, 3, 4, 5], [1]]], [True, False])
    p.apply()


@demo
def idle_steps_without_writes(variant):
    p = Pair(variant, TableLayout((16, 8), (6, 9), 5, 64))
    batch = (i32(1, 3), i32(0, 2, 5), i64(0, 17, 1, 2, 3), 2, 8)
    p.append(1, [[3, 4], [7, 8, 9]])
    p.append(3, [[5], [6]])
    p.apply()
    step = p.capture(*batch)
    p.compare("captured step")
    p.step(*batch)
    p.append(3, [[12], [13]])
    p.append(1, [[21], [22, 23]], overwrite=True)
    p.publish(step, 2)
    p.step(*batch)


@demo
def window_zeroed_apart(variant):
    p = Pair(variant, TableLayout((4, 8), (12, 9), 5, 64, sliding_window_reach=(8, 0)))
    p.append(1, [list(range(1, 12)), [7, 8, 9]])
    p.append(2, [[31, 32, 33], [34]])
    p.apply()
    computed = i32(0, 20, 9, 0, 0)
    p.gather(i32(1, 2), 3, computed=computed)
    p.gather(i32(-1, 1), 2, computed=computed)
    p.gather(i32(1, 2), 2)
    computed = i32(0, 20, 30, 0, 0)
    p.gather(i32(2, 1), 2, computed=computed)


@demo
def slots_by_token_blocks(variant):
    p = Pair(variant, TableLayout((4, 8), (12, 9), 5, 200))
    p.append(1, [[3, 4, 5], [7, 8, 9]])
    p.append(2, [[31, 32, 33], [34]])
    p.apply()
    positions = i64(0, 5, 9, 1, 2, 3)
    p.slots(i32(1, 4, 2), i32(0, 2, 2, 5), positions, 6)
    p.slots(i32(1, 4, 2), i32(0, 2, 2, 5, 5, 5), positions, 6)
    p.slots(i32(1, 2), i32(0, 2, 5, 1, 3), positions, 6)


@demo
def masks_for_ranks(variant):
    positions = torch.arange(40)
    for size, rank, sharded in ((1, 0, ()), (2, 1, (True, False)), (4, 2, ()), (3, 1, ())):
        layout = TableLayout(
            (4, 8), (12, 9), 5, 64, cp_size=size, cp_rank=rank, cp_interleave=2, dcp_sharded=sharded
        )
        p = Pair(variant, layout)
        p.append(1, [list(range(3, 15)), list(range(20, 29))])
        p.apply()
        p.slots(i32(1), i32(0, 40), positions, 48)
        p.slots(i32(1), i32(0, 40), positions, 48, out=torch.full((2, 60), -9))
