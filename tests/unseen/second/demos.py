"""Shows the fault of each variant in `wrong/` by legal calls: `demos.py [names]`.

Prints `ok NAME` when the fault shows and `NOT SHOWN NAME` when not, and whether a plain random
sequence shows it already. Each demonstration gets a `Pair`: the variant and the reference, to which
the same calls are made. It returns whether they differ, or whether the variant accepted what must
be refused.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import time
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[2] / "kernels")]

import torch  # noqa: E402

from bt_bench.worker.checking.interpreter_guard import OutOfBoundsError, guarded_memory  # noqa: E402
from bt_kernels import TableLayout  # noqa: E402
from bt_kernels.variants import fused, reference  # noqa: E402

SMALL = TableLayout((16, 64), (8, 8), 6, 64)


def variant_of(name):
    """The class in `wrong/NAME.py`, or the shipped `fused`."""
    if name == "fused":
        return fused.Variant
    spec = importlib.util.spec_from_file_location(f"wrong_{name}", HERE / "wrong" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.Variant


def ints(*values):
    return torch.tensor(values, dtype=torch.int64)


def shorts(*values):
    return torch.tensor(values, dtype=torch.int32)


def starts_of(*lengths):
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    return shorts(*ends)


def differ(first, second):
    return any(
        one.shape != two.shape or not torch.equal(one.long(), two.long())
        for one, two in zip(first, second, strict=True)
    )


class Pair:
    """The variant and the reference, with the same layout and calls."""

    def __init__(self, name):
        self._class = variant_of(name)
        self.inputs = []  # of the last step

    def make(self, layout=SMALL, **options):
        self.layout = layout
        self.tables = self._class(layout, "cpu", **options)
        self.right = reference.Variant(layout)
        return self

    def both(self, method, *arguments, **named):
        """Calls both; returns both results. Tensors that a call writes must not be given."""
        return [getattr(one, method)(*arguments, **named) for one in (self.tables, self.right)]

    def stage(self, row, *ids, overwrite=False):
        self.both("append_block_ids", row, list(ids), overwrite)

    def step(self, rows, lengths, positions, padded=None, **named):
        """A whole step; returns whether its results differ."""
        padded = len(rows) if padded is None else padded
        num_tokens = sum(lengths)
        batch = (ints(*rows), starts_of(*lengths), ints(*positions))
        self.inputs[:] = batch
        found, wanted = self.both("prepare_step", *batch, padded, num_tokens, **named)
        return differ([*found[0], found[1]], [*wanted[0], wanted[1]])

    def state_differs(self):
        found, wanted = self.tables.snapshot(), self.right.snapshot()
        return (
            differ(found.block_tables, wanted.block_tables)
            or differ(found.input_block_tables, wanted.input_block_tables)
            or differ([found.slot_mappings], [wanted.slot_mappings])
            or (found.num_blocks != wanted.num_blocks).any()
            or found.num_dirty_rows != wanted.num_dirty_rows
        )


def refused(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except ValueError:
        return True
    return False


def sizes_write_multiple(pair):
    pair.make(TableLayout((16,), (300,), 2, 8))
    pair.stage(1, list(range(1, 257)), overwrite=True)
    pair.both("apply_staged_writes")
    return pair.state_differs()


def sizes_groups_past_16(pair):
    pair.make(TableLayout((16,) * 17, (4,) * 17, 2, 8))
    pair.stage(1, *[[group + 1] for group in range(17)], overwrite=True)
    pair.both("apply_staged_writes")
    return pair.state_differs()


def sizes_position_float(pair):
    pair.make(TableLayout((4096,), (8192,), 2, 8))
    pair.stage(0, list(range(2, 8200, 2)), overwrite=True)
    return pair.step([0], [2], [2**24 + 4094, 2**24 + 4095])


def sizes_odd_many_rows(pair):
    pair.make(TableLayout((16,), (4,), 80, 80))
    for row in range(65):
        pair.stage(row, [row + 1], overwrite=True)
    return pair.step(range(65), [1] * 65, [0] * 65)


def sizes_long_slots_out(pair):
    pair.make()
    pair.stage(2, [7], [9], overwrite=True)
    pair.both("apply_staged_writes")
    outs = [torch.full((2, 100), 77) for _ in range(2)]
    for tables, out in zip((pair.tables, pair.right), outs, strict=True):
        tables.compute_slot_mappings(ints(2), shorts(0, 1), ints(3), 1, out)
    return differ(*[[out] for out in outs])


def sizes_block_size_48(pair):
    pair.make(TableLayout((48,), (4,), 2, 8))
    pair.stage(0, [3, 5], overwrite=True)
    return pair.step([0], [3], [31, 47, 48])


def capture(pair):
    """Makes a captured step of a batch of one row; without a GPU it runs at once."""
    pair.stage(0, [1], [2], overwrite=True)
    arguments = (ints(0), shorts(0, 1), ints(0), 1, 1)
    pair.right.prepare_step(*arguments)
    return pair.tables.capture_step(*arguments)


def time_second_publish(pair):
    pair.make()
    step = capture(pair)
    pair.stage(1, [5], [6], overwrite=True)
    step.publish()
    pair.stage(2, [7], [8], overwrite=True)
    step.publish()
    pair.both("apply_staged_writes")
    return differ(pair.tables.block_tables, pair.right.block_tables)


def time_restore_published(pair):
    pair.make()
    before = pair.tables.snapshot()
    capture(pair)
    pair.both("restore", before)
    pair.both("apply_staged_writes")
    return pair.state_differs()


def time_step_number_wraps(pair):
    pair.make(TableLayout((16,), (8,), 3, 8))
    pair.stage(0, [1, 2], overwrite=True)  # step 1
    wrong = pair.step([0], [1], [0])
    pair.stage(0, [5, 6], overwrite=True)
    wrong |= pair.step([0], [1], [0])
    for step in range(62):
        pair.stage(1, [step, 2], overwrite=True)
        wrong |= pair.step([1], [1], [0])
    assert not wrong
    pair.stage(1, [50, 60], overwrite=True)  # step 65
    return pair.step([0, 1], [1, 1], [0, 0])


def time_dummy_rows_clean(pair):
    pair.make()
    for views in pair.both("get_dummy_block_tables", 4):
        for view in views:
            view.fill_(9)
    pair.stage(0, [1], [2], overwrite=True)
    pair.step([0], [1], [0])
    return pair.state_differs()


def time_overwrite_with_nothing(pair):
    pair.make()
    pair.stage(3, [5, 6], [7])
    pair.stage(3, [], [], overwrite=True)
    pair.both("apply_staged_writes")
    return pair.state_differs()


def time_redirect_at_apply(pair):
    pair.make()
    pair.tables.redirect_writes_to_null_block = pair.right.redirect_writes_to_null_block = True
    pair.stage(1, [5], [6], overwrite=True)
    pair.tables.redirect_writes_to_null_block = pair.right.redirect_writes_to_null_block = False
    pair.both("apply_staged_writes")
    return pair.state_differs()


def two_rows(pair):
    pair.stage(0, [1, 2], [3, 4], overwrite=True)
    pair.stage(1, [5, 6], [7, 8], overwrite=True)
    pair.both("apply_staged_writes")


def memory_mapping_by_identity(pair):
    pair.make()
    two_rows(pair)
    mapping, starts, positions = ints(0), shorts(0, 1), ints(20)
    pair.both("prepare_step", mapping, starts, positions, 1, 1)
    mapping[0] = 1
    pair.both("prepare_step", mapping, starts, positions, 1, 1)
    return pair.state_differs()


def memory_out_by_identity(pair):
    pair.make()
    two_rows(pair)
    outs = [[torch.zeros(6, 8, dtype=torch.int32) for _ in range(2)] for _ in range(2)]
    kept = [list(out) for out in outs]
    for tables, out in zip((pair.tables, pair.right), outs, strict=True):
        tables.gather_block_tables(ints(0), 1, out)
        out[:] = [torch.zeros_like(table) for table in out]
        tables.gather_block_tables(ints(1), 1, out)
    return differ(*outs) and differ(*kept)


def memory_out_by_scratch(pair):
    pair.make()
    two_rows(pair)
    outs = [[torch.full((6, 8), 9, dtype=torch.int32) for _ in range(2)] for _ in range(2)]
    for tables, out in zip((pair.tables, pair.right), outs, strict=True):
        tables.gather_block_tables(ints(0), 1, out)
    return differ(*outs)


def memory_positions_clamped(pair):
    pair.make()
    two_rows(pair)
    positions = ints(-1, 20)
    arguments = (ints(0), shorts(0, 2), positions, 2)
    first = pair.tables.compute_slot_mappings(*arguments).clone()
    again = pair.tables.compute_slot_mappings(*arguments)
    return differ([first], [again]) and positions.tolist() != [-1, 20]


def memory_slots_out_copied(pair):
    pair.make()
    two_rows(pair)
    out = torch.zeros(2, 12, dtype=torch.int64)
    view = pair.tables.compute_slot_mappings(ints(0), shorts(0, 2), ints(3, 4), 4, out)
    pair.tables.compute_slot_mappings(ints(1), shorts(0, 2), ints(3, 4), 4, out)
    return not torch.equal(view, out[:, :4])


def memory_storage_offset(pair):
    pair.make()
    two_rows(pair)
    pair.both("compute_slot_mappings", ints(0), shorts(0, 1), ints(3, 4, 5, 6)[2:], 1)
    return pair.state_differs()


def arguments_many_row_twice(pair):
    pair.make()
    ids = [[[1] * 5, []], [[2] * 5, []]]
    shipped = fused.Variant(SMALL, "cpu")
    assert refused(shipped.append_many, [2, 2], ids, [False, False])
    return not refused(pair.tables.append_many, [2, 2], ids, [False, False])


def arguments_dirty_after_refusal(pair):
    pair.make()
    two_rows(pair)
    pair.step([0, 1], [1, 1], [0, 0])
    call = pair.tables.gather_and_compute_slot_mappings
    assert refused(call, ints(0), shorts(0, 1), shorts(0), 1, 1)  # positions are int32
    pair.both("gather_block_tables", ints(0), 1)
    return differ(pair.tables.input_block_tables, pair.right.input_block_tables)


def arguments_three_ranks(pair):
    pair.make(TableLayout((4,), (4,), 2, 16, cp_size=3, cp_rank=1))
    pair.stage(0, [3, 5], overwrite=True)
    return pair.step([0], [12], range(12))


def arguments_window_with_out(pair):
    pair.make(TableLayout((4,), (8,), 2, 16, sliding_window_reach=(4,)))
    pair.stage(0, [1, 2, 3, 4], overwrite=True)
    pair.both("apply_staged_writes")
    computed = shorts(13, 0)
    assert not differ(*pair.both("gather_block_tables", ints(0), 1, num_computed_tokens=computed))
    outs = [[torch.zeros(2, 8, dtype=torch.int32)] for _ in range(2)]
    for tables, out in zip((pair.tables, pair.right), outs, strict=True):
        tables.gather_block_tables(ints(0), 1, out, num_computed_tokens=computed)
    return differ(*outs)


def arguments_row_twice(pair):
    pair.make()
    two_rows(pair)
    assert not pair.step([1, -1, 0], [1, 1, 1], [0, 0, 0], 5)
    return pair.step([0, 1, 0], [1, 1, 1], [0, 1, 1])


def arguments_validate_once(pair):
    missing = ints(6)
    pair.make(validate=True)
    assert refused(pair.tables.gather_block_tables, missing, 1)
    pair.make()
    pair.tables.validate = True
    return not refused(pair.tables.compute_slot_mappings, ints(0), shorts(2, 2), ints(0), 1)


def paths_consecutive_prefill(pair):
    pair.make()
    two_rows(pair)
    return pair.step([0], [17], [0, 1, 2, 2, 3, 3, *range(4, 15)])


def paths_narrow_after_restore(pair):
    pair.make()
    other = reference.Variant(SMALL)
    other.append_block_ids(0, [[2**27 + 3], [2**25 + 5]], True)
    other.apply_staged_writes()
    pair.both("restore", other.snapshot())
    return pair.step([0], [1], [3])


def paths_carried_negative_id(pair):
    pair.make()
    pair.stage(0, [-3], [4])
    try:
        with guarded_memory(pair.tables, pair.inputs):
            pair.step([0], [1], [0])
    except OutOfBoundsError:
        return True
    return False


def paths_carried_last_column(pair):
    pair.make(TableLayout((16,), (65_538,), 2, 8))
    pair.stage(0, [1] * 65_536, overwrite=True)
    pair.both("apply_staged_writes")
    pair.stage(0, [7])
    pair.step([0], [1], [16 * 65_536])
    return pair.state_differs()


def paths_single_dummy(pair):
    pair.make()
    pair.stage(5, [3], [4], overwrite=True)
    assert not pair.step([-1, 5], [1, 1], [0, 0])
    return pair.step([-1], [1], [0])


def paths_window_skipped(pair):
    pair.make(TableLayout((4,), (8,), 3, 16, sliding_window_reach=(4,)))
    pair.stage(2, [1, 2, 3, 4], overwrite=True)
    return pair.step([2], [1], [13], num_computed_tokens=shorts(0, 0, 13))


def plain(pair, seed=1, num_steps=12):
    """Whether a small random sequence of prefill and decode steps shows a difference."""
    chance = random.Random(seed)
    pair.make()
    layout = pair.layout
    lengths = {}  # tokens of each running request, by row
    free = list(range(layout.max_num_reqs))
    for _ in range(num_steps):
        for row in [row for row in lengths if lengths[row] > 100 or chance.random() < 0.1]:
            del lengths[row]
            free.append(row)
        batch = dict.fromkeys(lengths, 1)
        if free and (not batch or chance.random() < 0.6):
            row = free.pop(chance.randrange(len(free)))
            lengths[row], batch[row] = 0, chance.randint(3, 40)
        rows, counts, positions = [], [], []
        for row, count in batch.items():
            before, after = lengths[row], lengths[row] + count
            ids = []
            for size in layout.block_sizes:
                ids.append(  # noqa: PERF401
                    [chance.randint(1, 999) for _ in range(-(-after // size) - -(-before // size))]
                )
            if any(ids):
                pair.stage(row, *ids, overwrite=before == 0)
            lengths[row] = after
            rows.append(row)
            counts.append(count)
            positions += range(before, after)
        padded = chance.randint(len(rows), layout.max_num_reqs)
        if pair.step(rows, counts, positions, padded) or pair.state_differs():
            return True
    return False


def main(names):
    names = names or sorted(path.stem for path in (HERE / "wrong").glob("*.py"))
    assert not plain(Pair("fused")), "the plain sequence finds a fault in a shipped variant"
    all_show = True
    for name in names:
        began = time.perf_counter()
        plainly = any(plain(Pair(name), seed) for seed in (1, 2))
        middle = time.perf_counter()
        shows = bool(globals()[name](Pair(name)))
        all_show &= shows
        note = "plain run finds it" if plainly else "plain run passes"
        times = f"{middle - began:.1f} s plain, {time.perf_counter() - middle:.1f} s demo"
        print(f"{'ok' if shows else 'NOT SHOWN'} {name} ({note}; {times})", flush=True)  # noqa: T201
    return 0 if all_show else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
