"""Legal calls by which each planted fault shows."""

import numpy as np
import torch
from bt_kernels.layout import TableLayout
from common import Differs, Pair, i32, i64

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


@demo
def skip_empty_apply(variant):
    p = Pair(variant, TableLayout((4, 8), (6, 3), 3, 16))
    p.append(1, [[5, 6], [7]], True)
    p.step(i32(1), i32(0, 2), i64(0, 1), 1, 2)
    p.poison(-3)
    p.append(1, [[], []], True)  # preempted
    p.step(i32(1), i32(0, 0), i64(), 1, 0)


@demo
def redirect_at_pack(variant):
    p = Pair(variant, TableLayout((4,), (6,), 3, 16))
    p.redirect(True)
    p.append(0, [[5, 6]], True)
    p.redirect(False)
    p.apply()


@demo
def decode_shape_guess(variant):
    p = Pair(variant, TableLayout((4,), (6,), 3, 16))
    p.append(0, [[5, 6]], True)
    p.append(2, [[8, 9]], True)
    p.step(i64(2, 0), i32(0, 1, 2), i64(5, 3), 2, 4)
    p.step(i64(2, 0), i32(0, 2, 2), i64(5, 6), 2, 4)


@demo
def window_not_reached(variant):
    p = Pair(variant, TableLayout((4, 4), (12, 12), 2, 8, sliding_window_reach=(4, 32)))
    p.append(1, [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], True)
    p.step(i64(1), i32(0, 1), i64(17), 1, 1, num_computed_tokens=i32(0, 17))


@demo
def cp_whole_blocks(variant):
    layout = TableLayout((4, 8), (5, 5), 2, 32, cp_size=2, cp_rank=1, cp_interleave=4)
    p = Pair(variant, layout)
    p.append(0, [[3, 4], [5, 6]], True)
    p.step(i64(0), i32(0, 16), torch.arange(16), 1, 16)


@demo
def count_mirror_rollback(variant):
    p = Pair(variant, TableLayout((4,), (8,), 2, 8))
    many = ([0, 0, 1], [[[1, 2]], [[3]], [list(range(9))]], [False] * 3)
    p.refused("too wide", lambda: p.v.append_many(*many))
    p.append(0, [list(range(1, 9))])
    p.apply()


@demo
def zero_copy_ids(variant):
    p = Pair(variant, TableLayout((4, 4), (8, 8), 2, 8))
    for dtype in (np.int64, np.int32):
        ids = [np.array([4, 5], dtype), np.array([6], dtype)]
        p.append(1, ids)
        for one in ids:
            one[:] = 99
        p.apply()


@demo
def restore_skips_source(variant):
    p = Pair(variant, TableLayout((4,), (8,), 2, 8))
    p.append(1, [[4, 5]], True)
    p.apply()
    state = p.snapshot()
    p.restore(state)
    p.append(1, [[9]])
    p.step(i64(1), i32(0, 1), i64(8), 1, 1)
    p.restore(state)
    p.append(1, [[9]])
    p.capture(i64(1), i32(0, 1), i64(8), 1, 1)
    p.compare("capture")
    p.restore(state)


@demo
def out_address_pool(variant):
    p = Pair(variant, TableLayout((4,), (3,), 2, 8))
    p.append(1, [[4, 5]], True)
    p.apply()
    outs = [[torch.full((2, 3), 77, dtype=torch.int32)] for _ in range(33)]
    for out in outs:
        p.gather(i64(1), 1, out)
    outs[0][0].fill_(78)
    p.gather(i64(1), 2, outs[0])


@demo
def magic_division(variant):
    p = Pair(variant, TableLayout((784,), (64,), 2, 4096))
    p.append(1, [[7 * i % 64 + 100 for i in range(64)]], True)
    p.step(i64(1), i32(0, 1000), torch.arange(1000), 1, 1000)
    p.step(i64(1), i32(0, 4096), torch.arange(43000, 47096), 1, 4096)


@demo
def packed_spans(variant):
    p = Pair(variant, TableLayout((1,), (65540,), 1, 8))
    p.append(0, [list(range(1, 65536))], True)
    p.apply()
    for block_id in (70001, 70002):
        p.append(0, [[block_id]])
        p.apply()


@demo
def epoch_byte_memo(variant):
    p = Pair(variant, TableLayout((4,), (40,), 2, 8))
    p.append(0, [[1, 2]], True)
    p.apply()
    p.gather(i64(0), 1)
    for turn in range(256):
        if turn < 20:
            p.append(0, [[10 + turn]])
        else:
            p.append(1, [[turn]], True)
        p.apply()
    p.gather(i64(0), 1)


@demo
def halved_mapping(variant):
    p = Pair(variant, TableLayout((4,), (4,), 2, 8))
    p.append(1, [[4, 5]], True)
    p.apply()
    p.gather(i64(1), 1)
    batch = torch.tensor([[1, 8], [0, 3]])
    p.gather(batch[:1, 0], 1)


@demo
def shared_captured_writes(variant):
    layout = TableLayout((4,), (4,), 2, 8)
    target, draft = Pair(variant, layout), Pair(variant, layout)
    for block_id, p in ((5, target), (6, draft)):
        p.append(1, [[block_id]], True)
        p.capture(i64(1), i32(0, 1), i64(0), 1, 1)
        p.compare("capture")
    target.append(0, [[7]], True)
    target.apply()
    draft.apply()
