"""Legal calls by which each fault shows."""

import torch
from common import Pair, i32, i64

from bt_kernels.layout import TableLayout

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


@demo
def window_chunks_skipped(variant):
    pair = Pair(variant, TableLayout((4, 4), (40, 40), 2, 8, sliding_window_reach=(8, 0)))
    pair.append(1, [range(1, 31), range(101, 131)], True)
    pair.apply()
    pair.gather(i32(1), 2)
    pair.gather(i32(1), 2, computed=i32(0, 30))  # the window begins in column 5
    pair.gather(i32(1), 2, computed=i32(0, 100))  # and in column 23


@demo
def grid_by_staged_blocks(variant):
    pair = Pair(variant, TableLayout((4,), (160,), 3, 8))
    pair.append(0, [range(1, 101)], True)
    pair.append(1, [range(201, 211)], True)
    pair.apply()
    pair.gather(i32(1, -1), 3)
    pair.append(0, [[7, 8]], True)
    pair.gather(i32(0, 1), 2)


@demo
def nothing_staged_shortcut(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 2, 8))
    batch = (i32(1), i32(0, 2), i64(0, 5))
    pair.append(1, [[3]], True)
    step = pair.capture(*batch, 1, 4)
    pair.step(*batch, 1, 4)
    pair.append(1, [[9]])
    pair.publish(step, 1)
    pair.step(*batch, 1, 4)


@demo
def restore_written_rows(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 3, 8))
    pair.append(0, [[1, 2]], True)
    pair.apply()
    first = pair.snapshot()
    pair.append(0, [[5]], True)
    pair.apply()
    second = pair.snapshot()
    pair.append(2, [[6]], True)
    pair.apply()
    pair.restore(second)
    pair.restore(first)


@demo
def interleave_as_mask(variant):
    for interleave in (1, 4, 3):
        layout = TableLayout(
            (12, 8),
            (3, 5),
            2,
            40,
            cp_size=2,
            cp_rank=1,
            cp_interleave=interleave,
            dcp_sharded=(True, False),
        )
        pair = Pair(variant, layout)
        pair.append(1, [[5, 2], [4, 3, 9]], True)
        pair.apply()
        pair.slots(i32(1), i32(0, 30), torch.arange(30), 32)


@demo
def validates_when_made(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 2, 8))
    pair.append(1, [[3, 5]], True)
    pair.v.validate = True
    pair.step(i32(1), i32(0, 3), i64(0, 1, 5), 1, 4)
    tables = pair.v
    pair.refused(
        "starts that do not begin at 0",
        lambda: tables.compute_slot_mappings(i32(1), i32(1, 3), i64(4, 4, 4), 4),
    )


@demo
def redirected_when_applied(variant):
    pair = Pair(variant, TableLayout((4,), (4,), 2, 8))
    pair.append(0, [[7]])
    pair.apply()
    pair.redirect(True)
    pair.append(0, [[8, 9]])
    pair.apply()
    pair.append(1, [[3]])
    pair.redirect(False)
    pair.apply()


@demo
def views_of_equal_layouts(variant):
    layout = TableLayout((4, 2), (4, 6), 2, 8)
    pairs = [Pair(variant, layout) for _ in range(2)]
    for number, pair in enumerate(pairs):
        pair.append(1, [[3 + number], [5 + number]])
        pair.step(i32(1), i32(0, 2), i64(0, 1), 1, 4)


@demo
def tile_longest(variant):
    """A dummy between short requests, where a long one was before."""
    pair = Pair(variant, TableLayout((4,), (50,), 6, 32))
    for row, length in enumerate((2, 40, 3, 1)):
        pair.append(row, [range(100 * row + 1, 100 * row + 1 + length)])
    pair.apply()
    pair.gather(i32(0, 1, 2, 3), 5)
    pair.gather(i32(0, -1, 2, 3), 5)


@demo
def narrow_positions(variant):
    """A position that no row holds, and whose lower half is one that it does."""
    pair = Pair(variant, TableLayout((4,), (6,), 3, 16))
    pair.append(1, [[7, 8, 9]])
    pair.apply()
    pair.slots(i32(1, 0), i32(0, 3, 4), i64(5, 2**31, 40, 0), 8)
    pair.slots(i32(1, 0), i32(0, 2, 3), i64(5, 2**32 + 6, 0), 8)


@demo
def late_redirect(variant):
    """A warm-up ends before its writes are applied."""
    pair = Pair(variant, TableLayout((4, 8), (6, 3), 3, 16))
    pair.append(0, [[4, 5], [6]])
    pair.apply()
    pair.redirect(True)
    pair.append(1, [[7, 8], [9]])
    pair.redirect(False)
    pair.apply()


@demo
def early_counts(variant):
    """A restore while something is staged for a row that was longer in the snapshot."""
    pair = Pair(variant, TableLayout((4,), (6,), 3, 16))
    pair.append(0, [[1, 2, 3]])
    pair.apply()
    state = pair.snapshot()
    pair.append(0, [[4]], overwrite=True)
    pair.apply()
    pair.append(0, [[5]])
    pair.restore(state)
    pair.gather(i32(0), 1)


@demo
def slots_by_layout(variant):
    """A buffer for more slots than the layout has."""
    pair = Pair(variant, TableLayout((4, 8), (6, 3), 3, 16))
    pair.append(0, [[1, 2, 3], [4]])
    pair.apply()
    mapping, starts, positions = i32(0, -1), i32(0, 3, 4), i64(0, 1, 9, 2)
    pair.slots(mapping, starts, positions, 8)
    pair.slots(mapping, starts, positions, 8, torch.full((2, 100), 77, dtype=torch.int64))
    pair.slots(mapping, starts, positions, 8, torch.full((2, 150), 77, dtype=torch.int64))


@demo
def kept_cut(variant):
    """A step of two tokens, then one of a prefill and a token."""
    pair = Pair(variant, TableLayout((4,), (12,), 3, 64))
    pair.append(0, [range(1, 11)])
    pair.append(1, [[20]])
    pair.step(i32(1, 0), i32(0, 1, 2), i64(0, 5), 2, 2)
    pair.step(i32(1, 0), i32(0, 1, 41), torch.tensor([1, *range(40)]), 2, 41)


@demo
def published_before(variant):
    """A captured step, a larger batch, and the captured step again."""
    pair = Pair(variant, TableLayout((4,), (6,), 5, 16))
    for row in range(4):
        pair.append(row, [[3 * row + 1, 3 * row + 2]])
    pair.apply()
    batch = i32(0, 1), i32(0, 1, 2), i64(3, 6)
    step = pair.capture(*batch, 2, 4)
    pair.compare("capture")
    pair.gather(i32(0, 1, 2, 3), 4)
    pair.publish(step, 2)
    pair.step(*batch, 2, 4)
