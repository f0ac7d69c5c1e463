"""Legal calls by which each fault shows."""

import numpy as np
import torch
from common import Pair, i32, i64

from bt_kernels.layout import TableLayout

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


def two_groups(**options):
    return TableLayout((4, 2), (6, 8), 4, 32, **options)


def started(variant, layout=None):
    p = Pair(variant, layout or two_groups())
    p.append_many([0, 1], [[[11, 12], [13, 14, 15]], [[21], [23, 24]]], [True, True])
    p.apply()
    return p


@demo
def merged_requests(variant):
    p = started(variant)
    p.append_many([0, 1, 0], [[[31], []], [[], [32]], [[33], [34]]], [False, False, True])
    p.step(i32(1, 0), i32(0, 2, 4), i64(0, 1, 0, 1), 3, 8)
    p.refused(
        "append_many, first too wide",
        lambda: p.v.append_many(
            [0, 1, 0], [[[1] * 6, []], [[5], []], [[41], [42]]], [False, False, True]
        ),
    )
    p.apply()


@demo
def null_block_padded(variant):
    p = started(variant)
    p.redirect(True)
    p.append(2, [[7, 8], [9]], True)
    p.redirect(False)
    p.step(i64(0, 2), i32(0, 3, 6), i64(0, 3, 7, 0, 1, 5), 2, 6)


@demo
def kept_pointers(variant):
    p = started(variant)

    def table(width):
        return torch.full((4, width), 77, dtype=torch.int32)

    first, second, third = table(6), table(8), table(8)
    p.gather(i32(0, 1), 2, out=[first, second])
    p.gather(i32(1, 0), 3, out=[first, second])
    p.gather(i32(1, 0), 3, out=[first, third])


@demo
def validated_once(variant):
    p = started(variant)
    p.v.validate = True
    mapping, starts, positions = i32(0, 1), i32(0, 2, 4), i64(0, 1, 0, 1, 2, 3)
    p.step(mapping, starts, positions, 2, 4)
    starts.copy_(i32(0, 2, 3))
    p.step(mapping, starts, positions, 2, 4)
    starts.copy_(i32(0, 2, 5))
    p.append(0, [[16], []])
    p.refused(
        "more tokens than num_tokens_padded",
        lambda: p.v.prepare_step(mapping, starts, positions, 2, 4),
    )


@demo
def overflow_overtakes(variant):
    p = Pair(variant, TableLayout((4,), (64,), 2, 32))
    batch = i32(0, 1), i32(0, 2, 4), i64(0, 5, 0, 1)
    p.append(0, [[1, 2]], True)
    step = p.capture(*batch, 2, 4)
    p.compare("captured")
    p.append(0, [[5, 6, 7]], True)
    p.publish(step, 2)  # and not replayed
    p.append(0, [list(range(100, 140))], True)
    p.publish(step, 2, compare=False)
    p.step(*batch, 2, 4)


@demo
def counts_too_early(variant):
    p = started(variant)
    p.poison(99)
    p.append(0, [[16, 17], [18]])
    p.v.init_block_table_layout_tensors()
    p.gather(i32(0, 1), 2)


@demo
def window_beside_ranks(variant):
    layout = two_groups(
        cp_size=2, cp_rank=1, sliding_window_reach=(2, 2), dcp_sharded=(True, False)
    )
    p = started(variant, layout)
    p.poison(99)
    p.step(i32(1, 0), i32(0, 1, 3), i64(3, 4, 5), 2, 4, num_computed_tokens=i32(4, 3, 0, 0))


@demo
def numpy_ids_wrap(variant):
    p = started(variant)
    p.append(2, [np.array([5, 6]), np.array([7])], True)
    p.refused(
        "an id past int32",
        lambda: p.v.append_block_ids(0, [np.array([3]), np.array([2**31 + 5])], False),
    )


@demo
def window_late_start(variant):
    pair = Pair(variant, TableLayout((2, 4), (80, 40), 3, 16, sliding_window_reach=(4, 0)))
    pair.append(1, [list(range(1, 77)), [5, 6]], True)
    pair.apply()
    pair.gather(i32(1), 1, computed=i32(0, 10, 0))
    pair.gather(i32(1), 1, computed=i32(0, 140, 0))


@demo
def slots_bisect_all(variant):
    pair = Pair(variant, TableLayout((4,), (6,), 8, 40))
    for row in range(4):
        pair.append(row, [[10 + row, 20 + row]], True)
    pair.apply()
    positions = i64(0, 1, 2, 3, 4, 5, 6)
    pair.slots(i32(2, 0, 3), i32(0, 2, 5, 7), positions, 8)
    pair.slots(i32(2, 0, 3), i32(0, 2, 5, 7, 7, 7), positions, 8)
    pair.slots(i32(2, 0, 3), i32(0, 2, 5, 7, 0, 0, 0, 0, 0), positions, 8)


@demo
def slots_wide_multiply(variant):
    pair = Pair(variant, TableLayout((4, 3), (4, 5), 3, 16))
    pair.append(0, [[2**31 - 1, 7], [3, 4]], True)
    pair.append(1, [[5, -6], [3, -(2**31)]], True)
    pair.apply()
    pair.slots(i64(0), i32(0, 3), i64(0, 3, 5), 4)
    pair.slots(i64(1, 0), i32(0, 3, 4), i64(0, 3, 5, 1), 4)


@demo
def apply_early_exit(variant):
    pair = Pair(variant, TableLayout((4, 4), (4, 5), 3, 16))
    pair.append(0, [[1, 2], [3]], True)
    pair.apply()
    pair.append(0, [[], [4]], True)
    pair.apply()
    pair.gather(i32(0), 1)


@demo
def gather_tiles_clamped(variant):
    pair = Pair(variant, TableLayout((4, 4), (4, 5), 3, 16))
    for row in range(3):
        pair.append(row, [[1 + row, 2], [3 + row]], True)
    pair.apply()
    pair.gather(i32(0, -1, 2), 3)
    pair.gather(i32(0, 3), 3)


@demo
def restore_same_counts(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 3, 16))
    pair.append(0, [[1, 2]], True)
    pair.apply()
    state = pair.snapshot()
    pair.append(0, [[9]], True)
    pair.apply()
    pair.append(0, [[8]], False)
    pair.restore(state)
    pair.gather(i32(0), 1)


@demo
def publish_nothing_staged(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 3, 16))
    batch = (i32(0, 1), i32(0, 1, 2), i64(0, 1))
    pair.append(0, [[1, 2]], True)
    pair.capture(*batch, 2, 2)
    pair.compare("captured step")
    pair.append(0, [[7, 8, 9]], True)
    pair.apply()
    pair.capture(*batch, 2, 2)
    pair.compare("captured step with nothing staged")
