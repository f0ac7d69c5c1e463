"""Legal calls by which each planted fault shows."""

import torch

from bt_kernels.layout import TableLayout
from common import Differs, Pair, i32, i64

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


def spread(*counts):
    """`query_start_loc` of requests with so many tokens."""
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count)
    return i32(*starts)


@demo
def pads_to_the_stride(variant):
    p = Pair(variant, TableLayout((4, 4), (3, 3), 2, 16))
    p.append(0, [[5, 6], [7, 8]], True)
    p.apply()
    whole = torch.full((2, 12), 88, dtype=torch.int64)
    out = whole[:, :8]
    p.both(i32(0), i32(0, 3), i64(2, 3, 4), 1, 4, slots_out=out)
    if not (whole[:, 8:] == 88).all():
        raise Differs(f"beside the caller's slots is {whole[:, 8:].tolist()}")


@demo
def zeroes_first_block_only(variant):
    p = Pair(variant, TableLayout((16,), (1100,), 3, 8))
    p.append(0, [[5, 6]], True)
    p.apply()
    p.poison(9)
    p.gather(i32(0), 3)


@demo
def empty_overwrite_not_counted(variant):
    p = Pair(variant, TableLayout((4, 4), (4, 4), 3, 8))
    p.append(1, [[5, 6, 7], [8, 9]], True)
    p.step(i32(1), i32(0, 1), i64(8), 1, 1)
    p.append(1, [[3], []], True)
    p.step(i32(1), i32(0, 1), i64(0), 1, 1)
    p.poison(-7)
    p.step(i32(1), i32(0, 1), i64(0), 1, 1)


@demo
def group_from_next_word(variant):
    p = Pair(variant, TableLayout((4, 8), (4, 4), 60, 8))
    p.append(3, [[5], [6]], True)
    p.append(50, [[7], [8]], True)
    p.step(i32(50, 3), i32(0, 1, 2), i64(0, 1), 2, 2)


@demo
def window_despite_ranks(variant):
    layout = TableLayout((4,), (6,), 2, 8, sliding_window_reach=(8,), cp_size=2, cp_rank=1)
    p = Pair(variant, layout)
    p.append(0, [[5, 6, 7, 8]], True)
    p.apply()
    p.gather(i32(0), 1, computed=i32(25, 0))


@demo
def kept_target_words(variant):
    p = Pair(variant, TableLayout((4,), (4,), 3, 8, sliding_window_reach=(4,)))
    p.append(0, [[5, 6, 7]], True)
    own = [torch.full((2, 4), 77, dtype=torch.int32)]
    p.step(i32(0), i32(0, 1), i64(8), 2, 1, out=own)
    p.append(0, [[8]])
    p.step(i32(0), i32(0, 1), i64(12), 1, 1, num_computed_tokens=i32(12, 0, 0))


@demo
def farthest_of_last_requests(variant):
    p = Pair(variant, TableLayout((16,), (4,), 260, 320))
    p.append(5, [[11, 12, 13, 14]], True)
    counts = [1] * 260
    counts[5] = 50
    positions = [q for count in counts for q in range(count)]
    p.step(torch.arange(260, dtype=torch.int32), spread(*counts), i64(*positions), 260, 310)


@demo
def uploads_before_clearing(variant):
    p = Pair(variant, TableLayout((4,), (4,), 2, 8))
    p.append(0, [[5]], True)
    p.apply()
    state = p.snapshot()
    p.append(0, [[6, 7]])
    p.apply()
    p.append(0, [[8]])
    p.restore(state)
    p.poison(-3)
    p.gather(i32(0), 1)


@demo
def stale_views_of_grown_set(variant):
    p = Pair(variant, TableLayout((4,), (40,), 2, 8))
    p.append(0, [range(100, 130)], True)
    p.apply()
    p.append(1, [[5, 6]], True)
    p.apply()
    p.gather(i32(0, 1), 2)


@demo
def captured_records_past_grid(variant):
    p = Pair(variant, TableLayout((4, 4), (2, 2), 130, 8))
    empty = torch.zeros(0, dtype=torch.int64)
    step = p.capture(i32(), i32(0), empty, 0, 0)
    rows = list(range(130))
    p.append_many(rows, [[[row], [1000 + row]] for row in rows], [True] * 130)
    p.publish(step, 0)
    p.apply()


@demo
def step_of_one_byte(variant):
    p = Pair(variant, TableLayout((4,), (3,), 2, 4))
    empty = torch.zeros(0, dtype=torch.int64)

    def nothing():
        p.step(i32(), i32(0), empty, 0, 0)

    p.append(0, [[11]], True)
    nothing()
    p.append(0, [[21, 22]], True)
    p.apply()
    nothing()  # has no number, but a buffer
    for block in range(254):
        p.append(1, [[block]], True)
        nothing()
    p.append(1, [[7]], True)
    p.step(i32(0, 1), i32(0, 1, 2), i64(0, 0), 2, 2)


@demo
def start_of_fifteen_bits(variant):
    p = Pair(variant, TableLayout((16,), (32_800,), 1, 4))
    p.append(0, [range(1, 32_771)], True)
    p.apply()
    p.append(0, [[99_999]])
    p.step(i32(0), i32(0, 1), i64(32_770 * 16), 1, 1)


@demo
def room_without_header(variant):
    p = Pair(variant, TableLayout((4,), (12,), 2, 4))
    batch = i32(0, -1), i32(0, 1, 1), i64(0)
    step = p.capture(*batch, 2, 1)
    p.append(0, [range(5, 14)], True)  # with its record 14 elements, of which there are 12
    p.publish(step, 2, compare=False)  # may apply them at once
    p.step(*batch, 2, 1)


@demo
def window_of_second_read(variant):
    p = Pair(variant, TableLayout((16,), (700,), 2, 32, sliding_window_reach=(64,)))
    p.append(1, [range(1, 601)], True)
    computed = 100 * 16 + 64
    p.step(i32(1), i32(0, 1), i64(computed), 1, 1, num_computed_tokens=i32(0, computed))


@demo
def one_span_each(variant):
    p = Pair(variant, TableLayout((64,), (140,), 2, 8_448))
    p.append(0, [range(1, 131)], True)
    p.append(1, [[200]], True)
    positions = torch.cat([torch.arange(8_300), i64(3)])
    p.step(i32(0, 1), i32(0, 8_300, 8_301), positions, 2, 8_301)


@demo
def refuses_adjacent_outputs(variant):
    p = Pair(variant, TableLayout((4, 8), (4, 2), 3, 8))
    p.append(2, [[5, 6, 7], [8, 9]], True)
    p.apply()
    memory = torch.full((3 * 4 + 3 * 2,), 77, dtype=torch.int32)
    p.gather(i32(2, -1), 3, out=[memory[:12].view(3, 4), memory[12:].view(3, 2)])
