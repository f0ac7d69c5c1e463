"""Shows each planted fault by legal calls, in Triton's interpreter.

    TRITON_INTERPRET=1 PYTHONPATH=../../../kernels python demos_planted.py [--instead] [NAME...]

Each patch of `planted/` is planted into a temporary folder; its demo makes the same calls on the
faulty variant and on the reference, and compares buffers and results after each call. With
`--instead` the unpatched variant takes the faulty one's place, and nothing may show.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
sys.path.insert(0, str(HERE.parents[2] / "kernels"))

import numpy as np
import torch
from bt_kernels.interface import TableState
from bt_kernels.layout import TableLayout
from bt_kernels.variants.reference import Variant as Reference
from support.planted import plant

torch.set_num_threads(1)


class Shown(Exception):
    """A difference."""


class Pair:
    """The same calls on a variant and on the reference."""

    def __init__(self, variant, layout):
        self.layout = layout
        self.tables, self.reference = variant(layout, "cpu"), Reference(layout)

    def same(self, what, ours, theirs):
        ours, theirs = torch.as_tensor(ours), torch.as_tensor(theirs)
        if ours.shape != theirs.shape:
            raise Shown(f"{what} has shape {tuple(ours.shape)}, not {tuple(theirs.shape)}")
        differs = ours.long() != theirs.long()
        if differs.any():
            at = tuple(differs.nonzero()[0].tolist())
            raise Shown(
                f"{what}{list(at)} is {ours[at].item()}, not {theirs[at].item()} "
                f"({int(differs.sum())} differ)"
            )

    def compare(self, what):
        ours, theirs = self.tables, self.reference
        for group in range(self.layout.num_groups):
            self.same(
                f"{what}: block_tables[{group}]",
                ours.block_tables[group],
                theirs.block_tables[group],
            )
            self.same(
                f"{what}: input_block_tables[{group}]",
                ours.input_block_tables[group],
                theirs.input_block_tables[group],
            )
        self.same(f"{what}: slot_mappings", ours.slot_mappings, theirs.slot_mappings)
        self.same(f"{what}: num_blocks", ours.num_blocks, theirs.num_blocks)
        if ours.num_dirty_rows != theirs.num_dirty_rows:
            raise Shown(
                f"{what}: num_dirty_rows is {ours.num_dirty_rows}, not {theirs.num_dirty_rows}"
            )

    def stage(self, writes, overwrite=True):
        """Writes are `(row, ids of each group)`."""
        for row, ids in writes:
            for tables in (self.tables, self.reference):
                tables.append_block_ids(row, ids, overwrite)

    def restore(self, lengths, seed=0):
        """Puts rows of so many blocks, of each group, into the source tables."""
        layout, rng = self.layout, np.random.default_rng(seed)
        tables = [
            torch.from_numpy(rng.integers(1, 10**6, (layout.max_num_reqs, width)).astype(np.int32))
            for width in layout.widths
        ]
        number = np.zeros((layout.num_groups, layout.max_num_reqs), np.int32)
        for row, length in lengths.items():
            number[:, row] = length
        inputs = [
            torch.zeros(layout.max_num_reqs, width, dtype=torch.int32) for width in layout.widths
        ]
        slots = torch.full((layout.num_groups, layout.max_num_batched_tokens), -1)
        for own in (self.tables, self.reference):
            own.restore(TableState(tables, inputs, slots, number, 0))
        self.compare("restore")

    def apply(self):
        self.tables.apply_staged_writes()
        self.reference.apply_staged_writes()
        self.compare("apply")

    def batch(self, rows, tokens, positions, dtype=torch.int64):
        """Tensors of a batch; `positions` of all tokens one after the other, default: from 0 on."""
        starts = torch.tensor([0, *np.cumsum(tokens)], dtype=torch.int32)
        if positions is None:
            positions = [position for number in tokens for position in range(number)]
        return torch.tensor(rows, dtype=dtype), starts, torch.tensor(positions, dtype=torch.int64)

    def both(self, what, call):
        """Makes a call on both, with a tensor's copies, and compares results."""
        ours, theirs = call(self.tables, 0), call(self.reference, 1)
        self.compare(what)
        for group, (own, expected) in enumerate(zip(ours[0], theirs[0], strict=True)):
            self.same(f"{what}: tables[{group}]", own, expected)
        self.same(f"{what}: slots", ours[1], theirs[1])

    def step(
        self,
        rows,
        tokens,
        positions=None,
        padded=None,
        computed=None,
        dtype=torch.int64,
        method="prepare_step",
        what="step",
        **options,
    ):
        batch = self.batch(rows, tokens, positions, dtype)
        padded = len(rows) if padded is None else padded
        if computed is not None:
            options["num_computed_tokens"] = torch.tensor(computed, dtype=torch.int32)
        self.both(
            what,
            lambda tables, _: getattr(tables, method)(*batch, padded, int(batch[1][-1]), **options),
        )

    def step_out(self, rows, tokens, out_rows=None, slots_out=None):
        """A step into tables or slots of the caller; `slots_out` is columns, and columns before."""
        batch = self.batch(rows, tokens, None)
        given = []
        for _ in range(2):
            options, kept = {}, []
            if out_rows is not None:
                options["out"] = kept = [
                    torch.full((out_rows, width), 7, dtype=torch.int32)
                    for width in self.layout.widths
                ]
            if slots_out is not None:
                columns, before = slots_out
                whole = torch.full(
                    (self.layout.num_groups, columns + 2 * before), 7, dtype=torch.int64
                )
                options["slots_out"] = whole[:, before : before + columns]
                kept = [*kept, whole]
            given.append((options, kept))
        self.both(
            "step with out",
            lambda tables, which: tables.prepare_step(
                *batch, len(rows), int(batch[1][-1]), **given[which][0]
            ),
        )
        for index, (own, expected) in enumerate(zip(given[0][1], given[1][1], strict=True)):
            self.same(f"step with out: out[{index}]", own, expected)

    def capture(self, batch, padded):
        """`capture_step`, which makes the step at once where nothing is being captured."""
        captured = self.tables.capture_step(*batch, padded, int(batch[1][-1]))
        self.reference.prepare_step(*batch, padded, int(batch[1][-1]))
        self.reference.num_dirty_rows = padded  # what a captured step perhaps fills
        self.tables.num_dirty_rows = padded
        self.compare("captured step")
        return captured


def ids(number, first=100):
    return list(range(first, first + number))


DEMOS = {}


def demo(function):
    DEMOS[function.__name__] = function
    return function


# Few requests with short rows


@demo
def left_by_lower_half(variant):
    pair = Pair(variant, TableLayout((16,), (32,), 4, 64))
    pair.stage([(2, [ids(20)])])
    pair.step([2**32 + 2, 0], [1, 1])


@demo
def dummy_finds_row_0(variant):
    pair = Pair(variant, TableLayout((16,), (32,), 4, 64))
    pair.stage([(1, [ids(10)])])
    pair.step([1], [1])
    pair.stage([(0, [ids(20)])])
    pair.step([-1, 0], [1, 1])


@demo
def slots_side_by_side(variant):
    pair = Pair(variant, TableLayout((16, 16), (4, 4), 4, 16))
    pair.stage([(1, [[3], [4]])])
    pair.step_out([1], [5], slots_out=(12, 0))
    pair.step_out([1], [5], slots_out=(12, 3))


@demo
def step_number_stays(variant):
    pair = Pair(variant, TableLayout((16,), (8,), 4, 16))
    pair.stage([(1, [[5, 6]])])
    pair.step([1], [1])
    pair.step([1], [1])
    pair.stage([(1, [[7, 8]])], overwrite=False)
    pair.apply()
    pair.step([1], [1])


@demo
def burst_overtakes(variant):
    pair = Pair(variant, TableLayout((16,), (40,), 4, 64))
    batch = pair.batch([0], [1], None)
    pair.stage([(0, [[5, 6]])])
    captured = pair.capture(batch, 1)
    pair.stage([(0, [[7, 8, 9]])])
    captured.publish()  # and not replayed
    pair.stage([(0, [ids(40)])])
    captured.publish()
    pair.step([0], [1])


@demo
def one_view_grows(variant):
    pair = Pair(variant, TableLayout((16,), (64,), 4, 16))
    pair.stage([(1, [ids(50)])])
    pair.apply()
    pair.stage([(2, [[5, 6]])])
    pair.apply()


@demo
def pads_in_four_bits(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 2, 15_361))
    pair.stage([(1, [[5, 6]])])
    pair.step([1], [20])
    pair.step([1], [10])


@demo
def window_of_unsharded(variant):
    layout = TableLayout(
        (4, 4),
        (8, 8),
        4,
        16,
        sliding_window_reach=(4, 4),
        cp_size=2,
        cp_rank=1,
        dcp_sharded=(True, False),
    )
    pair = Pair(variant, layout)
    pair.stage([(1, [ids(3), ids(5)])])
    pair.step([1], [4], range(12, 16), computed=[0, 12, 0, 0])


@demo
def out_has_dirty_rows(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 4, 16))
    pair.stage([(row, [[row + 1]]) for row in range(3)])
    pair.step([0, 1, 2], [1, 1, 1])
    pair.step_out([1], [1], out_rows=3)


@demo
def ordered_by_last(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 8, 16))
    pair.stage([(5, [[55]]), (1, [[11]]), (2, [[22]])])
    pair.step([5, 1, 2], [1, 1, 1])


# Many requests or long rows


@demo
def one_piece_each(variant):
    pair = Pair(variant, TableLayout((16,), (33_900,), 2, 16))
    pair.restore({1: 33_900})
    pair.step([1], [1], [33_000])


@demo
def farthest_of_last(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 257, 64))
    pair.restore({row: 3 for row in range(257)})
    pair.step(range(257), [40] + [0] * 256)


@demo
def no_more_than_tokens(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 132, 96))
    pair.restore({row: 3 for row in range(132)})
    pair.step(range(132), [40] + [0] * 130 + [40])


@demo
def all_at_once(variant):
    pair = Pair(variant, TableLayout((16,), (640,), 13, 16))
    pair.stage([(3, [ids(600)])])
    pair.step(range(13), [1] * 13)


@demo
def window_in_each_piece(variant):
    pair = Pair(variant, TableLayout((4,), (600,), 2, 16, sliding_window_reach=(8,)))
    pair.restore({1: 600})
    pair.step([1], [4], range(48, 52), computed=[0, 48])


@demo
def tile_is_shared(variant):
    pair = Pair(variant, TableLayout((16,), (1100,), 14, 16))
    pair.stage([(12, [ids(1100)])])
    pair.step(range(13), [1] * 13)
    pair.stage([(12, [[5]])])
    pair.step([*range(12), -1], [1] * 13, padded=14)


@demo
def writers_by_span(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 65, 16))
    pair.stage([(0, [[9]])])
    pair.step([0, 0, 0], [1, 1, 1])
    pair.stage([(row, [[row]]) for row in range(65)])
    pair.step([1], [1])


@demo
def writer_after_64(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 70, 16))
    pair.stage([*((row, [[row]]) for row in range(63)), (63, [[5, 6]])])
    pair.step([1], [1])


@demo
def tail_of_a_write(variant):
    pair = Pair(variant, TableLayout((16,), (160,), 2, 16))
    pair.stage([(1, [ids(128)])])
    pair.apply()
    pair.stage([(1, [ids(131)])])
    pair.apply()


@demo
def captured_256(variant):
    pair = Pair(variant, TableLayout((16, 16), (4, 4), 130, 16))
    batch = pair.batch([129], [1], None)
    pair.stage([(row, [[row], [row]]) for row in range(130)])
    pair.capture(batch, 1)


@demo
def zeroed_by_length(variant):
    pair = Pair(variant, TableLayout((16,), (1100,), 4, 16))
    pair.restore({1: 1100})
    pair.step([1, 1], [1, 1])
    pair.step([1, -1], [1, 1])


@demo
def chunks_of_one_row(variant):
    pair = Pair(variant, TableLayout((16,), (1100,), 4, 16))
    pair.restore({0: 1100, 1: 2})
    pair.step([1, 1, 0], [2, 2, 2])
    pair.step([1, 0], [1, 1])


@demo
def columns_in_15_bits(variant):
    pair = Pair(variant, TableLayout((16,), (32_776,), 2, 16))
    pair.restore({1: 32_768})
    pair.stage([(1, [[5, 6]])], overwrite=False)
    pair.step([1], [1])


@demo
def ids_of_each_block(variant):
    pair = Pair(variant, TableLayout((16,), (1100,), 2, 16))
    pair.stage([(1, [ids(1030)])])
    pair.step([1], [1])


@demo
def ids_of_each_chunk(variant):
    pair = Pair(variant, TableLayout((16,), (1100,), 2, 16))
    pair.restore({1: 1000})
    pair.stage([(1, [ids(60)])], overwrite=False)
    pair.step([1], [1])


@demo
def window_skips_blocks(variant):
    pair = Pair(variant, TableLayout((4,), (1100,), 2, 16, sliding_window_reach=(8,)))
    pair.restore({1: 1100})
    pair.step([1], [1], [10], computed=[0, 10])
    pair.step([1], [1], [4200], computed=[0, 4200])


@demo
def pieces_by_fours(variant):
    pair = Pair(variant, TableLayout((16,), (1100,), 2, 16))
    pair.restore({1: 1026})
    pair.step([1], [1])


@demo
def begun_by_tokens(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 257, 64))
    pair.restore({row: 3 for row in range(257)})
    pair.step(range(257), [0] * 256 + [40])


@demo
def rows_in_turn(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 70, 80))
    pair.restore({row: 3 for row in range(70)})
    pair.step(range(70), [1] * 70)
    pair.step(range(66), [1] * 66)


@demo
def requests_in_turn(variant):
    pair = Pair(variant, TableLayout((16,), (4,), 66, 160))
    pair.restore({row: 3 for row in range(66)})
    pair.step(range(65), [2] * 65)
    pair.step(range(65), [1] * 65)


def main():
    arguments = sys.argv[1:]
    instead = "--instead" in arguments
    names = [name for name in arguments if name != "--instead"]
    patches = sorted((HERE / "planted").glob("*.patch"))
    assert {patch.stem for patch in patches} == set(DEMOS), "a demo for each patch"
    shown = 0
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for patch in patches:
            if names and patch.stem not in names:
                continue
            began = time.perf_counter()
            if instead:
                variant = patch.read_text("utf-8").splitlines()[0].removeprefix("Variant:").strip()
                module = importlib.import_module(f"bt_kernels.variants.{variant}")
            else:
                plant(patch, Path(folder))
                importlib.invalidate_caches()
                module = importlib.import_module(patch.stem)
            try:
                DEMOS[patch.stem](module.Variant)
                outcome = "does not show"
            except Shown as difference:
                outcome, shown = f"shows ({difference})", shown + 1
            except Exception as error:
                outcome = f"raises {type(error).__name__}: {error}"
            print(f"{patch.stem}: {outcome}  [{time.perf_counter() - began:.1f} s]", flush=True)
    print(f"{shown} show")


if __name__ == "__main__":
    main()
