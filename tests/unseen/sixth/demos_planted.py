"""Legal calls by which each planted fault shows."""

from bt_kernels.layout import TableLayout
from common import Differs, Pair, i32, i64

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


@demo
def odd_words_unaligned(variant):
    pair = Pair(variant, TableLayout((16,), (8,), 8, 32))
    for row in range(4):
        pair.append(row, [[10 + row, 20 + row]], True)
    pair.append(4, [[30]], True)
    pair.step(i32(0, 1, 2, 3, 4), i32(0, 1, 2, 3, 4, 5), i64(20, 21, 22, 23, 3), 5, 5)


@demo
def bisection_stops_early(variant):
    pair = Pair(variant, TableLayout((4,), (40,), 4, 128))
    pair.append(0, [range(100, 110)], True)
    pair.append(1, [range(200, 215)], True)
    positions = i64(*range(40), *range(60))
    pair.step(i32(0, 1), i32(0, 40, 100), positions, 2, 100)


@demo
def rank_of_unsharded(variant):
    layout = TableLayout((4, 4), (8, 8), 4, 32, cp_size=2, cp_rank=1, dcp_sharded=(True, False))
    pair = Pair(variant, layout)
    pair.append(2, [[5], [6, 7]], True)
    pair.step(i32(2), i32(0, 8), i64(*range(8)), 1, 8)


@demo
def validates_stale_starts(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 8, 32))
    pair.v.validate = True
    pair.append(3, [[5, 6]], True)
    pair.step(i32(3, -1), i32(0, 5, 5, 0, 0, 4, 2, 9, 0), i64(*range(5)), 2, 8)


@demo
def four_bits_of_pads(variant):
    pair = Pair(variant, TableLayout((16,), (8,), 2, 16384))
    pair.append(1, [[5]], True)
    pair.poison(7)
    pair.step(i32(1), i32(0, 3), i64(0, 1, 2), 1, 4)


@demo
def room_without_header(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    batch = i32(0, 1), i32(0, 1, 2), i64(0, 0)
    step = pair.capture(*batch, 2, 2)
    for row, ids in enumerate(([1, 2], [3, 4], [5], [6])):
        pair.append(row, [ids], True)
    # Nothing to compare: the writes may be applied by `publish`, or left to a replay.
    pair.publish(step, 2, compare=False)
    pair.apply()


@demo
def one_span_each(variant):
    pair = Pair(variant, TableLayout((16,), (600,), 2, 9000))
    pair.append(1, [range(7, 607)], True)
    pair.step(i64(1), i32(0, 9000), i64(*range(9000)), 1, 9000)


@demo
def chunks_skip_staged(variant):
    pair = Pair(variant, TableLayout((16,), (1200,), 2, 32))
    pair.append(0, [range(1, 1101)], True)
    pair.poison(-3)
    pair.step(i32(0), i32(0, 1), i64(17000), 1, 1)
    pair.append(0, [[7, 8, 9]], False)
    pair.poison(-4)
    pair.step(i32(0), i32(0, 1), i64(17610), 1, 1)


@demo
def ring_only_doubles(variant):
    pair = Pair(variant, TableLayout((16,), (64,), 2, 32))
    for start in range(3):
        pair.append(start % 2, [[start]], False)
        pair.step(i32(0, 1), i32(0, 1, 2), i64(3, 4), 2, 2)
    pair.append(1, [range(100, 140)], True)
    pair.step(i32(1), i32(0, 4), i64(600, 601, 602, 603), 1, 4)
    pair.append(0, [range(200, 240)], True)
    pair.apply()


@demo
def refusal_counts_once(variant):
    pair = Pair(variant, TableLayout((4, 8), (5, 5), 4, 16))
    pair.append(2, [[1], [2]], True)
    pair.refused(
        "a row twice",
        lambda: pair.v.append_many(
            [2, 1, 2], [[[3, 4], [5]], [[6], [7]], [[8, 9, 10], [11]]], [False] * 3
        ),
    )
    pair.apply()
    pair.gather(i32(2, 1), 2)


@demo
def chunks_of_all_rows(variant):
    pair = Pair(variant, TableLayout((16,), (1030,), 4, 32))
    pair.append(0, [[1, 2, 3]], True)
    pair.poison(9)
    pair.step(i32(0, -1), i32(0, 1, 1), i64(33), 3, 2)


@demo
def empty_publish_forgets(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.append(0, [[1, 2]], True)
    step = pair.capture(i32(0, 1), i32(0, 1, 2), i64(4, 0), 2, 2)
    pair.append(1, [[3, 4]], True)
    pair.publish(step, 2)
    # Applies what was published before, which the reference does next.
    pair.publish(step, 2, compare=False)
    pair.apply()


@demo
def discards_after_upload(variant):
    pair = Pair(variant, TableLayout((4,), (8,), 4, 16))
    pair.append(0, [[1, 2, 3]], True)
    step = pair.capture(i32(0, 1), i32(0, 1, 2), i64(4, 0), 2, 2)
    state = pair.snapshot()
    pair.append(0, [[4]], True)
    pair.apply()
    pair.append(0, [[5]], False)
    pair.publish(step, 2)
    pair.restore(state)
    pair.poison(-8)
    pair.gather(i32(0), 1)


@demo
def length_is_signed(variant):
    pair = Pair(variant, TableLayout((16,), (32900,), 2, 32))
    pair.append(1, [range(10, 32850)], True)
    pair.step(i32(1), i32(0, 1), i64(32800 * 16 + 5), 1, 1)


@demo
def halves_as_rows(variant):
    pair = Pair(variant, TableLayout((16,), (40,), 4, 32))
    pair.append(1, [[1, 2]], True)
    pair.append(2, [[3]], True)
    pair.step(i64(1, 2), i32(0, 1, 2), i64(20, 3), 2, 2)
    pair.append(0, [range(50, 80)], True)  # scheduled later
    pair.step(i64(1, 2), i32(0, 1, 2), i64(21, 4), 2, 2)
