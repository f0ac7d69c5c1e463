"""Legal calls in which the mistake of each wrong variant shows; nothing shows on a shipped one.

TRITON_INTERPRET=1 PYTHONPATH=../../../kernels python demos_wrong.py [NAME...]
    [--instead SHIPPED] [--ordinary]

`--ordinary` runs ordinary random decode and prefill steps instead of the demos.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time

import numpy as np
import torch

from bt_kernels.layout import TableLayout
from common import HERE, Differs, Pair, i32, i64, load, ordinary

DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


def layout_of(sizes=(4,), widths=(8,), rows=4, tokens=16, **options):
    return TableLayout(sizes, widths, rows, tokens, **options)


# ---- sizes


@demo
def sizes_locality_sort(V):
    p = Pair(V, layout_of(widths=(2,), rows=1100, tokens=4))
    for row in range(0, 1100, 7):
        p.v.append_block_ids(row, [[row + 1]], True)
        p.r.append_block_ids(row, [[row + 1]], True)
    p.apply()
    p.gather(torch.arange(1000), 1000)
    p.gather(torch.arange(1100).flip(0), 1100)


@demo
def sizes_magic_division(V):
    size = 544
    p = Pair(V, layout_of((size,), (60_000,), 2))
    p.append(1, [list(range(100, 60_100))], True)
    p.apply()
    for column in (100, 10_000, 40_000, 59_999):
        end = (column + 1) * size
        p.slots(i64(1), i32(0, 3), i64(end - 2, end - 1, end), 3)


@demo
def sizes_nan_pad(V):
    p = Pair(V, layout_of((2**24,), (4,), 2))
    p.append(0, [[2**31 - 1, 7]], True)
    p.apply()
    p.slots(i64(0), i32(0, 2), i64(2**24, 2**24 + 1), 2)
    p.slots(i64(0), i32(0, 2), i64(0, 1), 2)


@demo
def sizes_written_groups(V):
    p = Pair(V, layout_of((4,) * 9, (3,) * 9))
    p.append(1, [[group] for group in range(9)], True)
    p.apply()


@demo
def sizes_one_block_gather(V):
    p = Pair(V, layout_of(widths=(4100,), rows=2))
    p.append(1, [list(range(1, 4101))], True)
    p.apply()
    p.gather(i64(1), 1)
    p.poison(5)
    p.gather(i64(), 1)


@demo
def sizes_pad_grid(V):
    p = Pair(V, layout_of((16,), (1250,), 2, 20_000))
    p.append(1, [list(range(1, 1251))], True)
    p.step(i64(1), i32(0, 20_000), torch.arange(20_000), 1, 20_000)
    p.step(i64(1), i32(0, 8), torch.arange(8), 1, 8)


# ---- state


@demo
def state_refused_many(V):
    p = Pair(V, layout_of())
    p.append(1, [[11, 12]], True)
    p.refused(
        "append_many", lambda: p.v.append_many([1, 2], [[[13]], [list(range(9))]], [False, True])
    )
    p.apply()


@demo
def state_refused_overwrite(V):
    p = Pair(V, layout_of())
    p.append(1, [[11, 12]], False)
    p.refused("append", lambda: p.v.append_block_ids(1, [list(range(9))], True))
    p.apply()


@demo
def state_redirect_at_apply(V):
    p = Pair(V, layout_of())
    p.redirect(True)
    p.append(1, [[11, 12]], True)
    p.redirect(False)
    p.apply()


@demo
def state_restore_skips_rows(V):
    p = Pair(V, layout_of())
    p.append(1, [[11]], True)
    p.apply()
    p.append(1, [[12, 13]])
    state = p.snapshot()
    p.restore(state)
    p.poison(5)
    p.gather(i64(1), 1)


@demo
def state_version_branches(V):
    p = Pair(V, layout_of())
    first = p.snapshot()
    p.append(1, [[11]], True)
    p.apply()
    second = p.snapshot()
    p.restore(first)
    p.append(2, [[22]], True)
    p.apply()
    p.restore(second)


@demo
def state_slots_skipped(V):
    p = Pair(V, layout_of())
    p.append(1, [[11]], True)
    p.apply()
    batch = i64(1), i32(0, 2), i64(0, 1)
    p.slots(*batch, 2)
    p.dummy_slots(4)
    p.slots(*batch, 2)


@demo
def state_dirty_mirror(V):
    p = Pair(V, layout_of())
    p.append(1, [[11]], True)
    p.apply()
    p.poison(7)
    p.v.num_dirty_rows = p.r.num_dirty_rows = 3
    p.gather(i64(1), 1)


# ---- arguments


@demo
def arguments_wrapping_arrays(V):
    p = Pair(V, layout_of())
    p.append(1, [np.array([3, 4])], True)
    p.refused("2**31", lambda: p.v.append_block_ids(1, [np.array([2**31])], False))


@demo
def arguments_strict_strides(V):
    p = Pair(V, layout_of())
    p.append(1, [[11]], True)
    p.step(i64(1, 2)[::2], i32(0, 1), i64(3), 1, 1)


@demo
def arguments_validated_once(V):
    p = Pair(V, layout_of())
    p.append(1, [[11]], True)
    p.apply()
    p.v.validate = True
    batch = i64(1), i32(0, 2), i64(0, 1)
    p.slots(*batch, 2)
    batch[1].numpy()[1] = 3  # more tokens than positions
    p.refused("query_start_loc", lambda: p.v.compute_slot_mappings(*batch, 2))


# ---- time


@demo
def time_marks_wrap(V):
    p = Pair(V, layout_of())
    p.append(1, [[11]], True)
    p.apply()
    state = p.snapshot()
    p.append(1, [[12, 13]])
    p.apply()
    p.restore(state)
    for step in range(1, 64):
        p.append(2, [[step]], True)
        p.apply()
        p.poison(5)
        p.gather(i64(1), 1)


@demo
def time_idle_shrink(V):
    p = Pair(V, layout_of(widths=(600,)))
    p.append(1, [list(range(500))], True)
    p.apply()
    for _ in range(32):
        p.apply()
    p.append(1, [list(range(7, 500))], True)
    p.apply()


@demo
def time_publish_twice(V):
    p = Pair(V, layout_of())
    batch = i64(1), i32(0, 1), i64(0)
    step = p.capture(*batch, 1, 1)
    p.append(1, [[11]], True)
    p.publish(step, 1)
    p.append(2, [[22]], True)
    p.publish(step, 1, compare=False)  # when the first are written, is not said
    p.step(*batch, 1, 1)  # in place of a replay


@demo
def time_restore_published(V):
    p = Pair(V, layout_of())
    state = p.snapshot()
    step = p.capture(i64(1), i32(0, 1), i64(0), 1, 1)
    p.append(1, [[11]], True)
    p.publish(step, 1)
    p.restore(state)
    p.append(2, [[22]], True)
    p.apply()


# ---- memory


@demo
def memory_ring_growth(V):
    p = Pair(V, layout_of(widths=(3000,)))
    for step in range(8):
        p.append(1, [[step]], True)
        p.apply()
    p.append(1, [list(range(3000))], True)
    p.apply()
    for step in range(9):
        p.append(2, [[step + 5]], True)
        p.apply()


@demo
def memory_sentinel_ids(V):
    p = Pair(V, layout_of())
    p.append(1, [[5, -(2**31), -1]], True)
    p.apply()


@demo
def memory_token_scratch(V):
    p = Pair(V, layout_of(tokens=4))
    p.append(1, [[11, 12]], True)
    p.apply()
    p.slots(i64(1), i32(0, 6), torch.arange(6), 6, torch.zeros(1, 8, dtype=torch.int64))


@demo
def memory_numpy_alias(V):
    p = Pair(V, layout_of())
    ids = np.array([11, 12], dtype=np.int32)
    p.append(1, [ids], True)
    ids[:] = 99
    p.apply()


@demo
def memory_out_cache(V):
    p = Pair(V, layout_of())
    p.append(1, [[11, 12]], True)
    p.apply()
    one, two = (torch.full((2, 8), value, dtype=torch.int32) for value in (1, 2))
    ptrs = i64(one.data_ptr())
    p.gather(i64(1), 1, [one], ptrs)
    ptrs[0] = two.data_ptr()
    p.gather(i64(1), 1, [two], ptrs)


# ---- paths


@demo
def paths_window_key(V):
    p = Pair(V, layout_of((4, 16), (16, 4), sliding_window_reach=(16, 16)))
    p.append(1, [list(range(1, 11)), [21, 22, 23]], True)
    p.apply()
    p.gather(i64(1), 1, computed=i32(0, 40, 0, 0))


@demo
def paths_rank_mask(V):
    p = Pair(V, layout_of(cp_size=3, cp_rank=0))
    p.append(1, [[11, 12]], True)
    p.apply()
    p.slots(i64(1), i32(0, 12), torch.arange(12), 12)


@demo
def paths_layout_cache(V):
    for rank in range(2):
        p = Pair(V, layout_of((4,), (9,), cp_size=2, cp_rank=rank))
        p.append(1, [[11, 12]], True)
        p.apply()
        p.slots(i64(1), i32(0, 12), torch.arange(12), 12)


@demo
def paths_slots_from_input(V):
    p = Pair(V, layout_of())
    p.append(1, [[11, 12, 13]], True)
    p.apply()
    p.append(1, [[14]], True)  # columns 1 and 2 keep 12 and 13
    p.step(i64(1), i32(0, 2), i64(0, 5), 1, 2)


@demo
def paths_increments(V):
    p = Pair(V, layout_of())
    for row in range(4):
        p.append(row, [[11 + row]], True)
    p.apply()
    p.slots(i64(0, 1, 2, 3), i32(0, 1, 1, 2, 3), i64(0, 0, 0), 3)


@demo
def paths_view_cache(V):
    p = Pair(V, layout_of())
    for row in range(4):
        p.append(row, [[11 + row]], True)
    p.apply()
    buffer = i64(3, 2, 1)
    p.gather(buffer, 3)
    narrow = buffer.view(torch.int32)[:3]
    narrow[:] = i32(1, 2, 3)
    p.gather(narrow, 3)


@demo
def paths_empty_overwrite(V):
    p = Pair(V, layout_of())
    p.append(1, [[11, 12]], True)
    p.apply()
    p.append(1, [[]], True)
    p.apply()
    p.poison(5)
    p.gather(i64(1), 1)


@demo
def paths_inverse_mapping(V):
    p = Pair(V, layout_of())
    p.append(1, [[11, 12]], True)
    p.apply()
    p.gather(i64(1, 0, 1), 3)


@demo
def memory_disabled_slots(V):
    p = Pair(V, layout_of((4, 4), (8, 1), slot_mapping_enabled=(True, False)))
    p.append(1, [[11], [12]], True)
    p.apply()
    p.slots(i64(1), i32(0, 2), i64(0, 1), 2, torch.full((2, 5), 9))


@demo
def paths_no_tokens(V):
    p = Pair(V, layout_of())
    p.append(1, [[11]], True)
    p.step(i64(1), i32(0, 2), i64(0, 1), 1, 2)
    p.step(i64(1), i32(0, 0), i64(), 1, 2)


@demo
def time_warmup_step(V):
    p = Pair(V, layout_of())
    p.append(1, [[11]], True)
    p.step(i64(1), i32(0, 2), i64(0, 1), 1, 2)
    p.v.warmup()
    p.compare("warmup")


@demo
def memory_replaced_tables(V):
    p = Pair(V, layout_of())
    p.append(1, [[11]], True)
    p.step(i64(1), i32(0, 2), i64(0, 1), 1, 2)
    p.v.input_block_tables[0] = p.v.input_block_tables[0].clone()
    p.v.init_block_table_layout_tensors()
    p.addresses = p._addresses()
    p.step(i64(1), i32(0, 2), i64(0, 1), 1, 2)


@demo
def state_dummies_dirty(V):
    p = Pair(V, layout_of())
    p.append(1, [[11]], True)
    p.apply()
    p.gather(i64(1, -1), 2)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--instead")
    parser.add_argument("--ordinary", action="store_true")
    chosen = parser.parse_args()
    existing = sorted(path.stem for path in (HERE / "wrong").glob("*.py"))
    if missing := set(existing) - set(DEMOS):
        print("no demo:", missing)
    shown = 0
    names = chosen.names or existing
    for name in names:
        if chosen.instead:
            variant = importlib.import_module(f"bt_kernels.variants.{chosen.instead}").Variant
        else:
            variant = load("wrong" if name in existing else "spare", name)
        began = time.perf_counter()
        try:
            (ordinary if chosen.ordinary else DEMOS[name])(variant)
        except Differs as error:
            shown += 1
            print(f"{name}: shows ({time.perf_counter() - began:.1f} s): {str(error)[:150]}")
        else:
            print(f"{name}: does not show ({time.perf_counter() - began:.1f} s)")
        sys.stdout.flush()
    print(f"{shown} of {len(names)} show")
    return 0


if __name__ == "__main__":
    sys.exit(main())
