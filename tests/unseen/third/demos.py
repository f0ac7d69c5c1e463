"""Shows the fault of each wrong variant by legal calls; run it with names, or for all of them.

`--instead NAME` runs the demonstrations on a shipped variant, where none may show anything.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import os
import random
import sys
import time
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "kernels"))

import torch  # noqa: E402

from bt_kernels.layout import TableLayout  # noqa: E402
from bt_kernels.variants.reference import Variant as Reference  # noqa: E402

INSTEAD: list[str] = []
DEMOS = {}


class Both:
    """A variant and the reference; `wrong` says whether they ever differed."""

    def __init__(self, make, **layout):
        self.layout = TableLayout(**layout)
        self.variant, self.reference = make(self.layout, "cpu"), Reference(self.layout)
        self.wrong = False

    def __call__(self, method, *args, **options):
        theirs_args, theirs = copy.deepcopy((args, options))
        result = getattr(self.variant, method)(*args, **options)
        theirs.pop("out_ptrs", None)
        expected = getattr(self.reference, method)(*theirs_args, **theirs)
        self.differ(result, expected)
        for mine, other in ((args, theirs_args), (options, theirs)):
            self.differ(mine, other)
        self.look()
        return result

    def set(self, name, value):
        setattr(self.variant, name, value)
        setattr(self.reference, name, value)

    def look(self):
        mine, other = self.variant, self.reference
        self.differ(mine.block_tables, other.block_tables)
        self.differ(mine.input_block_tables, other.input_block_tables)
        self.differ(mine.slot_mappings, other.slot_mappings)
        self.differ(mine.num_blocks.tolist(), other.num_blocks.tolist())
        self.differ(mine.num_dirty_rows, other.num_dirty_rows)

    def differ(self, mine, other):
        if isinstance(mine, torch.Tensor):
            self.wrong |= not torch.equal(mine.long(), other.long())
        elif isinstance(mine, (list, tuple)):
            for one, two in zip(mine, other, strict=True):
                self.differ(one, two)
        elif isinstance(mine, dict):
            for name in other:
                self.differ(mine[name], other[name])
        else:
            self.wrong |= mine != other


def load(name):
    if INSTEAD:
        return importlib.import_module(f"bt_kernels.variants.{INSTEAD[0]}").Variant
    spec = importlib.util.spec_from_file_location(f"wrong_{name}", HERE / "wrong" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Variant


def demo(function):
    DEMOS[function.__name__] = function
    return function


def i32(values):
    return torch.tensor(values, dtype=torch.int32)


def i64(values):
    return torch.tensor(values, dtype=torch.int64)


def step(rows, starts, positions, padded, tokens):
    return i64(rows), i32(starts), i64(positions), padded, tokens


def layout(block_sizes=(4, 8), widths=(8, 8), rows=6, tokens=32, **options):
    sizes = {"max_num_reqs": rows, "max_num_batched_tokens": tokens}
    return {"block_sizes": block_sizes, "widths": widths, **sizes, **options}


def refused(call, *args, **options):
    try:
        call(*args, **options)
    except ValueError:
        return True
    return False


# sizes


@demo
def sizes_float_column(make):
    both = Both(make, **layout((65536,), (400,)))
    both("append_block_ids", 0, [list(range(1, 401))], True)
    both("prepare_step", *step([0], [0, 2], [2**24 + 65535, 2**24 + 3 * 65536 - 1], 1, 2))
    return both.wrong


@demo
def sizes_product_uint32(make):
    both = Both(make, **layout())
    both("append_block_ids", 0, [[2**30], [2**29]], True)
    both("prepare_step", *step([0], [0, 1], [3], 1, 1))
    return both.wrong


@demo
def sizes_block_of_one(make):
    both = Both(make, **layout((1, 4)))
    both("append_block_ids", 0, [list(range(1, 9)), [9]], True)
    both("prepare_step", *step([0], [0, 2], [7, 8], 1, 2))
    return both.wrong


@demo
def sizes_rows_after_64(make):
    both = Both(make, **layout((4,), (2,), rows=70))
    for row in range(70):
        both("append_block_ids", row, [[row + 1]], True)
    both("apply_staged_writes")
    both("gather_block_tables", torch.arange(70), 70)
    return both.wrong


@demo
def sizes_column_after_chunk(make):
    both = Both(make, **layout((4,), (300,)))
    both("append_block_ids", 0, [list(range(1, 258))], True)
    both("apply_staged_writes")
    both("gather_block_tables", i64([0]), 1)
    return both.wrong


@demo
def sizes_disabled_ninth_group(make):
    enabled = (True,) * 8 + (False,)
    both = Both(make, **layout((4,) * 9, (2,) * 9, slot_mapping_enabled=enabled))
    both("append_block_ids", 0, [[3]] * 9, True)
    both("prepare_step", *step([0], [0, 1], [3], 1, 1))
    return both.wrong


# time


@demo
def time_step_number_wraps(make):
    both = Both(make, **layout((4,), (80,), tokens=4))
    for index in range(70):
        # Row 0 is written in the first two steps alone.
        row = 0 if index < 2 else 1
        ids = [2 * index + 1, 2 * index + 2]
        both("append_block_ids", row, [ids], index % 30 == 2)
        both("prepare_step", *step([0, 1], [0, 1, 2], [1, 1], 2, 2))
    return both.wrong


@demo
def time_redirect_at_apply(make):
    both = Both(make, **layout())
    both.set("redirect_writes_to_null_block", True)
    both("append_block_ids", 0, [[1], [2]], True)
    both.set("redirect_writes_to_null_block", False)
    both("apply_staged_writes")
    return both.wrong


@demo
def time_pads_high_water(make):
    both, other = Both(make, **layout()), Both(make, **layout())
    other("append_block_ids", 0, [[1], [2]], True)
    other("prepare_step", *step([0], [0, 4], [0, 1, 2, 3], 1, 4))
    both.variant.restore(other.variant.snapshot())
    both.reference.restore(other.reference.snapshot())
    both("prepare_step", *step([0], [0, 1], [0], 1, 1))
    return both.wrong


@demo
def time_second_publication(make):
    both = Both(make, **layout())
    batch = step([0, -1], [0, 1, 1], [0, 0], 2, 2)
    captured = both.variant.capture_step(*batch)
    both.reference.prepare_step(*batch)
    both.look()
    for row in (0, 1):
        both("append_block_ids", row, [[5 + row], [7 + row]], True)
        captured.publish()
    both.set("num_dirty_rows", 2)
    both("prepare_step", *step([0, 1], [0, 1, 2], [0, 0], 2, 2))
    return both.wrong


@demo
def time_counts_at_16th_gather(make):
    both = Both(make, **layout())
    both("append_block_ids", 0, [[1], [2]], True)
    both("apply_staged_writes")
    both("append_block_ids", 0, [[], []], True)
    for index in range(17):
        both("gather_block_tables", i64([0]), 1 + index % 2)
        both("get_dummy_block_tables", 2)
    return both.wrong


@demo
def time_same_gather_after_dummy(make):
    both = Both(make, **layout())
    both("append_block_ids", 0, [[1], [2]], True)
    both("apply_staged_writes")
    both("gather_block_tables", i64([0]), 1)
    both("get_dummy_block_tables", 1)
    both("gather_block_tables", i64([0]), 1)
    return both.wrong


# memory


@demo
def memory_slots_out_copied(make):
    both = Both(make, **layout())
    both("append_block_ids", 0, [[1], [2]], True)
    both("apply_staged_writes")
    wide = torch.full((2, 12), 77)
    both("compute_slot_mappings", *step([0], [0, 2], [0, 1], 0, 4)[:3], 4, out=wide[:, 2:8])
    return both.wrong


@demo
def memory_mapping_kept(make):
    both = Both(make, **layout())
    both("append_block_ids", 0, [[1], [2]], True)
    both("append_block_ids", 1, [[3], [4]], True)
    both("apply_staged_writes")
    mapping = i32([0])
    both("gather_block_tables", mapping, 1)
    mapping.fill_(1)
    both("gather_block_tables", mapping, 1)
    return both.wrong


@demo
def memory_dummy_slots_elsewhere(make):
    both = Both(make, **layout())
    view = both("get_dummy_slot_mappings", 4)
    return view.data_ptr() != both.variant.slot_mappings.data_ptr()


@demo
def memory_snapshot_shares_counts(make):
    both = Both(make, **layout())
    mine, other = both.variant.snapshot(), both.reference.snapshot()
    both("append_block_ids", 0, [[1], [2]], True)
    both.variant.restore(mine)
    both.reference.restore(other)
    both.look()
    return both.wrong


@demo
def memory_zeroes_up_to_longest(make):
    both = Both(make, **layout())
    both("append_block_ids", 0, [[1], [2]], True)
    both("apply_staged_writes")
    out = [torch.full((3, 8), 99, dtype=torch.int32) for _ in range(2)]
    both("gather_block_tables", i64([0, -1]), 3, out)
    return both.wrong


@demo
def memory_positions_clamped(make):
    both = Both(make, **layout())
    both("append_block_ids", 0, [[1], [2]], True)
    both("prepare_step", *step([0], [0, 2], [0, -5, -9], 1, 4))
    return both.wrong


# arguments


@demo
def arguments_computed_unchecked(make):
    both = Both(make, **layout())
    return not refused(
        both.variant.gather_block_tables, i64([0]), 1, num_computed_tokens=torch.zeros(6)
    )


@demo
def arguments_row_twice(make):
    both = Both(make, **layout())
    both("append_block_ids", 3, [[1], [2]], True)
    both("apply_staged_writes")
    both("gather_block_tables", i64([3, 3]), 2)
    return both.wrong


@demo
def arguments_many_half_staged(make):
    both = Both(make, **layout())
    ids = [[1] * 5, [2]]
    assert refused(both.variant.append_many, [2, 2], [ids, ids], [False, False])
    both("apply_staged_writes")
    return both.wrong


@demo
def arguments_refused_overwrite(make):
    both = Both(make, **layout())
    both("append_block_ids", 2, [[1], [2]], True)
    assert refused(both.variant.append_block_ids, 2, [[1], [2] * 9], True)
    both("apply_staged_writes")
    return both.wrong


@demo
def arguments_slots_out_checked_late(make):
    both = Both(make, **layout())
    both("append_block_ids", 2, [[1], [2]], True)
    batch = step([2], [0, 1], [0], 1, 4)
    short = torch.zeros(2, 3, dtype=torch.int64)
    assert refused(both.variant.prepare_step, *batch, slots_out=short)
    both.look()
    return both.wrong


@demo
def arguments_odd_ranks(make):
    both = Both(make, **layout(cp_size=3, cp_rank=2, cp_interleave=2))
    both("append_block_ids", 0, [[1, 2], [3]], True)
    both("prepare_step", *step([0], [0, 14], range(14), 1, 14))
    return both.wrong


# paths


@demo
def paths_out_sets_dirty(make):
    both = Both(make, **layout())
    for row in range(3):
        both("append_block_ids", row, [[row + 1], [row + 5]], True)
    both("apply_staged_writes")
    both("gather_block_tables", i64([0, 1, 2]), 3)
    out = [torch.zeros(3, 8, dtype=torch.int32) for _ in range(2)]
    both("gather_block_tables", i64([0]), 1, out)
    both("gather_block_tables", i64([0]), 1)
    return both.wrong


@demo
def paths_carried_negative_id(make):
    both = Both(make, **layout())
    both("append_block_ids", 1, [[4, 5], [6, 7]], True)
    both("prepare_step", *step([1], [0, 1], [0], 1, 1))
    both("append_block_ids", 1, [[-3], [8]], False)
    both("prepare_step", *step([1], [0, 1], [8], 1, 1))
    return both.wrong


@demo
def paths_chunks_of_average(make):
    both = Both(make, **layout((16, 16), tokens=80))
    both("append_block_ids", 0, [[1, 2, 3, 4, 5]] * 2, True)
    both("append_block_ids", 1, [[9]] * 2, True)
    both("prepare_step", *step([0, 1], [0, 70, 71], [*range(70), 0], 2, 71))
    return both.wrong


@demo
def paths_decode_by_size(make):
    both = Both(make, **layout())
    for row in range(2):
        both("append_block_ids", row, [[row + 1], [row + 5]], True)
    both("prepare_step", *step([0, 1], [0, 2, 2], [0, 1], 2, 2))
    return both.wrong


@demo
def paths_header_address(make):
    both = Both(make, **layout())
    for row in range(3):
        both("append_block_ids", row, [[row + 1], [row + 5]], True)
    mapping, starts, positions, *sizes = step([0, 1, 2], [0, 1], [0], 1, 1)
    both("prepare_step", mapping[1:2], starts, positions, *sizes)
    return both.wrong


@demo
def paths_captured_window(make):
    both = Both(make, **layout(sliding_window_reach=(4, 0)))
    both("append_block_ids", 0, [[1, 2, 3, 4], [5, 6]], True)
    batch = step([0], [0, 1], [13], 1, 1)
    computed = i32([13] * 6)
    both.variant.capture_step(*batch, num_computed_tokens=computed)
    both.reference.prepare_step(*batch, num_computed_tokens=computed)
    both.look()
    return both.wrong


def plain(make, seed=1, steps=8):
    """Whether a few random decode and prefill steps on small tables differ from the reference."""
    chance = random.Random(seed)
    both = Both(make, **layout())
    sizes = both.layout.block_sizes
    lengths = dict.fromkeys(range(6), 0)
    for _ in range(steps):
        rows = chance.sample(range(6), chance.randint(1, 5))
        starts, positions = [0], []
        for row in rows:
            fresh = lengths[row] in (0, *range(27, 33))
            done = 0 if fresh else lengths[row]
            new = chance.randint(2, 6) if fresh else 1
            have = [0 if fresh else -(-done // size) for size in sizes]
            lists = [
                [chance.randint(1, 999) for _ in range(have[group], -(-(done + new) // size))]
                for group, size in enumerate(sizes)
            ]
            both("append_block_ids", row, lists, fresh)
            positions += range(done, done + new)
            starts.append(len(positions))
            lengths[row] = done + new
        both("prepare_step", *step(rows, starts, positions, min(6, len(rows) + 1), 32))
    return both.wrong


def main(arguments):
    """Runs demonstrations; returns how many did not show."""
    if arguments[:1] == ["--instead"]:
        INSTEAD.append(arguments[1])
        arguments = arguments[2:]
    missing = 0
    for name in arguments or DEMOS:
        began = time.perf_counter()
        shown = DEMOS[name](load(name))
        took = time.perf_counter() - began
        found = "plain run finds it" if plain(load(name)) else "plain run passes"
        verdict = "ok" if shown else "NOT SHOWN"
        sys.stdout.write(f"{verdict} {name} ({found}; {took:.1f} s)\n")
        sys.stdout.flush()
        missing += not shown
    return missing


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
