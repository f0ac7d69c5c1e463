"""Shows what is wrong with each wrong variant, and that the right ones are right.

`python demos.py [names]` runs all demos, or those named, each in a process of its own, and prints
what differs from the reference. A wrong variant is driven by legal calls only, or by illegal ones
that must be refused.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import signal
import subprocess
import sys
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "kernels"))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from bt_kernels.interface import BlockTableOperations, TableState  # noqa: E402
from bt_kernels.layout import TableLayout  # noqa: E402
from bt_kernels.variants.reference import Variant as Reference  # noqa: E402

TIMEOUT_S = 120
GARBAGE = 77

Demo = Callable[[], str]
DEMOS: dict[str, Demo] = {}
ARGUED = {
    "time_ring_without_waiting": "Only a late device reads a buffer after it was refilled; the "
    "interpreter has read it when the launch returns.",
    "paths_padding_races_with_slots": "The interpreter runs the programs of a launch in order, the "
    "one that pads first; on a GPU nothing makes it come before those that write the same slots.",
    "paths_apply_races_with_gather": "The interpreter runs the programs that write before those "
    "that read; on a GPU they run at the same time.",
}


def demo(function: Demo) -> Demo:
    """Registers a demo under its name."""
    DEMOS[function.__name__] = function
    return function


def load(name: str, folder: str = "wrong") -> type[BlockTableOperations]:
    """The class in a variant file."""
    spec = spec_from_file_location(f"{folder}_{name}", HERE / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Variant


def layout(
    sizes: Sequence[int] = (4,),
    widths: Sequence[int] = (8,),
    rows: int = 6,
    tokens: int = 24,
    **options: Any,
) -> TableLayout:
    """A small layout."""
    return TableLayout(tuple(sizes), tuple(widths), rows, tokens, **options)


def ints(values: Sequence[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """A vector."""
    return torch.tensor(list(values), dtype=dtype)


def starts_of(lengths: Sequence[int]) -> torch.Tensor:
    """`query_start_loc` of requests with so many tokens."""
    return ints(np.cumsum([0, *lengths]).tolist(), torch.int32)


class Both:
    """A variant and the reference, driven by the same calls; notes what differs."""

    def __init__(
        self, name: str, shape: TableLayout, folder: str = "wrong", **options: Any
    ) -> None:
        self.shape = shape
        self.it: Any = load(name, folder)(shape, "cpu", **options)
        self.reference: Any = Reference(shape, "cpu")
        self.found: list[str] = []
        self.addresses = self._addresses()

    def _addresses(self) -> list[int]:
        tables = [*self.it.block_tables, *self.it.input_block_tables, self.it.slot_mappings]
        return [table.data_ptr() for table in tables]

    def note(self, where: str, name: str, mine: Any, expected: Any) -> None:
        """Notes a difference of two tensors or arrays."""
        mine, expected = np.asarray(mine), np.asarray(expected)
        if mine.shape != expected.shape:
            self.found.append(f"{where}: {name} has shape {mine.shape}, expected {expected.shape}")
        elif (mine != expected).any():
            place = tuple(int(i) for i in np.argwhere(mine != expected)[0])
            at = list(place)
            self.found.append(f"{where}: {name}{at} is {mine[place]}, expected {expected[place]}")

    def compare(self, where: str) -> None:
        """Compares the whole state."""
        for kind in ("block_tables", "input_block_tables"):
            pairs = zip(getattr(self.it, kind), getattr(self.reference, kind), strict=True)
            for group, (mine, expected) in enumerate(pairs):
                self.note(where, f"{kind}[{group}]", mine, expected)
        self.note(where, "slot_mappings", self.it.slot_mappings, self.reference.slot_mappings)
        self.note(where, "num_blocks", self.it.num_blocks, self.reference.num_blocks)
        self.note(where, "num_dirty_rows", self.it.num_dirty_rows, self.reference.num_dirty_rows)
        if self._addresses() != self.addresses:
            self.found.append(f"{where}: a table has another address")

    def compare_views(self, where: str, mine: Any, expected: Any, owners: Any) -> None:
        """Compares what calls returned, which must be views of the owners."""
        for group, (view, other, owner) in enumerate(zip(mine, expected, owners, strict=True)):
            self.note(where, f"returned[{group}]", view, other)
            if view.numel() and view.data_ptr() != owner.data_ptr():
                self.found.append(f"{where}: returned[{group}] is not a view of its buffer")

    def garbage(self, seed: int = 0) -> None:
        """Restores a state with something in every output."""
        state = self.reference.snapshot()
        generator = torch.Generator().manual_seed(seed)
        for table in [*state.input_block_tables, state.slot_mappings]:
            table.copy_(torch.randint(500, 900, table.shape, generator=generator))
        self.restore(state)

    def restore(self, state: TableState) -> None:
        """Restores a state in both."""
        self.it.restore(state)
        self.reference.restore(state)
        self.compare("restore")

    def stage(self, row: int, *lists: Sequence[int], overwrite: bool = False) -> None:
        """Stages one request."""
        for tables in (self.it, self.reference):
            tables.append_block_ids(row, [list(ids) for ids in lists], overwrite)
        self.note("append", "num_blocks", self.it.num_blocks, self.reference.num_blocks)

    def stage_many(self, rows: list[int], lists: list[Any], overwrite: list[bool]) -> None:
        """Stages several requests by one call of the variant."""
        if hasattr(self.it, "append_many"):
            self.it.append_many(rows, lists, overwrite)
        else:
            for request in zip(rows, lists, overwrite, strict=True):
                self.it.append_block_ids(*request)
        for request in zip(rows, lists, overwrite, strict=True):
            self.reference.append_block_ids(*request)
        self.note("append_many", "num_blocks", self.it.num_blocks, self.reference.num_blocks)

    def redirect(self, value: bool) -> None:
        """Sets `redirect_writes_to_null_block`."""
        self.it.redirect_writes_to_null_block = value
        self.reference.redirect_writes_to_null_block = value

    def apply(self) -> None:
        """Applies."""
        self.it.apply_staged_writes()
        self.reference.apply_staged_writes()
        self.compare("apply")

    def outs(self, rows: int | None) -> tuple[Any, Any]:
        """A caller's tables for each of the two."""
        if rows is None:
            return None, None
        made = [torch.full((rows, w), GARBAGE, dtype=torch.int32) for w in self.shape.widths]
        return made, [table.clone() for table in made]

    def slot_outs(self, columns: int | None, wider: int) -> tuple[Any, Any, Any]:
        """A caller's slots for each of the two, and the wider tensor that the first is in."""
        if columns is None:
            return None, None, None
        whole = torch.full((self.shape.num_groups, columns + wider), GARBAGE)
        return whole[:, :columns], whole[:, :columns].clone(), whole

    def gather(
        self,
        rows: Sequence[int] | torch.Tensor,
        padded: int | None = None,
        dtype: torch.dtype = torch.int64,
        computed: Sequence[int] | None = None,
        out: int | None = None,
    ) -> Any:
        """Gathers; `out` is the number of rows of the caller's tables."""
        mapping = rows if isinstance(rows, torch.Tensor) else ints(rows, dtype)
        padded = mapping.numel() if padded is None else padded
        tokens = None if computed is None else ints(computed, torch.int32)
        mine, other = self.outs(out)
        views = self.it.gather_block_tables(mapping, padded, mine, None, tokens)
        expected = self.reference.gather_block_tables(mapping, padded, other, None, tokens)
        self.compare("gather")
        self.compare_views("gather", views, expected, mine or self.it.input_block_tables)
        if mine is not None:
            for group, (table, right) in enumerate(zip(mine, other, strict=True)):
                self.note("gather", f"out[{group}]", table, right)
        return views

    def slots(
        self,
        rows: Sequence[int] | torch.Tensor,
        lengths: Sequence[int] | torch.Tensor,
        positions: Sequence[int] | torch.Tensor,
        padded: int | None = None,
        out: int | None = None,
        wider: int = 0,
    ) -> Any:
        """Computes slots; `lengths` may be `query_start_loc` itself."""
        mapping = rows if isinstance(rows, torch.Tensor) else ints(rows)
        starts = lengths if isinstance(lengths, torch.Tensor) else starts_of(lengths)
        where = positions if isinstance(positions, torch.Tensor) else ints(positions)
        padded = int(starts[mapping.numel()]) if padded is None else padded
        mine, other, whole = self.slot_outs(out, wider)
        before = where.clone()
        view = self.it.compute_slot_mappings(mapping, starts, where, padded, mine)
        self.note("slots", "the argument positions", where, before)
        expected = self.reference.compute_slot_mappings(mapping, starts, before, padded, other)
        self.compare("slots")
        owner = self.it.slot_mappings if mine is None else mine
        self.compare_views("slots", [view], [expected], [owner])
        if mine is not None:
            self.note("slots", "out", mine, other)
            self.note("slots", "behind out", whole[:, out:], np.full_like(whole[:, out:], GARBAGE))
        return view

    def together(
        self,
        method: str,
        rows: Sequence[int],
        lengths: Sequence[int],
        positions: Sequence[int],
        padded: tuple[int, int],
        dtype: torch.dtype = torch.int64,
        computed: Sequence[int] | None = None,
        out: int | None = None,
        slots_out: int | None = None,
    ) -> None:
        """Makes a combined operation."""
        batch = (ints(rows, dtype), starts_of(lengths), ints(positions), *padded)
        tokens = None if computed is None else ints(computed, torch.int32)
        tables, others = self.outs(out)
        mine, other, whole = self.slot_outs(slots_out, 3)
        found, slots = getattr(self.it, method)(
            *batch, out=tables, num_computed_tokens=tokens, slots_out=mine
        )
        expected, expected_slots = getattr(self.reference, method)(
            *batch, out=others, num_computed_tokens=tokens, slots_out=other
        )
        self.compare(method)
        self.compare_views(method, found, expected, tables or self.it.input_block_tables)
        owner = self.it.slot_mappings if mine is None else mine
        self.compare_views(method, [slots], [expected_slots], [owner])
        for group in range(0 if tables is None else len(tables)):
            self.note(method, f"out[{group}]", tables[group], others[group])
        if mine is not None:
            self.note(method, "slots_out", mine, other)
            rest = whole[:, slots_out:]
            self.note(method, "behind slots_out", rest, np.full_like(rest, GARBAGE))

    def dummies(self, num_reqs: int) -> Any:
        """Asks for dummy tables."""
        views = self.it.get_dummy_block_tables(num_reqs)
        expected = self.reference.get_dummy_block_tables(num_reqs)
        self.compare("get_dummy_block_tables")
        self.compare_views("dummies", views, expected, self.it.input_block_tables)
        return views, expected

    def dummy_slots(self, num_tokens: int) -> None:
        """Asks for dummy slots."""
        view = self.it.get_dummy_slot_mappings(num_tokens)
        expected = self.reference.get_dummy_slot_mappings(num_tokens)
        self.compare("get_dummy_slot_mappings")
        self.compare_views("dummy slots", [view], [expected], [self.it.slot_mappings])

    def capture(
        self,
        rows: Sequence[int],
        lengths: Sequence[int],
        positions: Sequence[int],
        padded: tuple[int, int],
    ) -> Any:
        """Captures a step, which without a GPU runs it, and returns it for publications."""
        if not hasattr(self.it, "capture_step"):
            return None
        batch = (ints(rows), starts_of(lengths), ints(positions), *padded)
        step = self.it.capture_step(*batch)
        reference = self.reference
        reference.prepare_step(*batch)
        if reference.num_dirty_rows > padded[0]:
            raise AssertionError("a captured step fills fewer rows")
        # A publication counts all rows that a replay fills.
        reference.num_dirty_rows = self.it.num_dirty_rows
        self.compare("capture_step")
        return step

    def must_refuse(self, what: str, call: Callable[[], object]) -> None:
        """Makes an illegal call of the variant, which must raise and change nothing."""
        before = self.it.snapshot()
        try:
            call()
        except ValueError:
            now = self.it.snapshot()
            for kind in ("block_tables", "input_block_tables"):
                pairs = zip(getattr(now, kind), getattr(before, kind), strict=True)
                for group, (mine, expected) in enumerate(pairs):
                    self.note(f"refused: {what}", f"{kind}[{group}]", mine, expected)
            self.note(f"refused: {what}", "num_blocks", now.num_blocks, before.num_blocks)
            dirty = (now.num_dirty_rows, before.num_dirty_rows)
            self.note(f"refused: {what}", "num_dirty_rows", *dirty)
        else:
            self.found.append(f"accepted: {what}")

    def result(self) -> str:
        """The first difference; raises if there is none."""
        assert self.found, "nothing differs"
        return self.found[0]


def random_layout(chance: random.Random) -> TableLayout:
    """Any options."""
    groups = chance.choice([1, 2, 3, 5])
    ranks = chance.choice([1, 1, 1, 2, 3, 5])
    interleave = chance.choice([1, 2])
    return layout(
        [chance.choice([1, 2, 4, 6, 16]) * interleave for _ in range(groups)],
        [chance.choice([1, 3, 6, 9, 40, 70]) for _ in range(groups)],
        chance.choice([1, 2, 5, 9]),
        chance.choice([1, 7, 16, 33]),
        slot_mapping_enabled=[chance.random() < 0.8 for _ in range(groups)],
        sliding_window_reach=[chance.choice([0, 0, 3, 20]) for _ in range(groups)],
        cp_size=ranks,
        cp_rank=chance.randrange(ranks),
        cp_interleave=interleave,
        dcp_sharded=[chance.random() < 0.7 for _ in range(groups)],
    )


class Fuzz:
    """Random legal calls; `plain` leaves out the options and whatever is unusual."""

    def __init__(self, name: str, seed: int, folder: str, plain: bool = False) -> None:
        self.chance = chance = random.Random(seed)
        self.plain = plain
        shape = layout([16, 4][:2], [6, 12][:2], 6, 32) if plain else random_layout(chance)
        self.both = Both(name, shape, folder)
        self.states = [self.both.reference.snapshot()]
        if not plain:
            self.both.garbage(seed)
            self.states.append(self.both.reference.snapshot())

    def run(self, steps: int) -> None:
        """Makes so many steps.

        Raises:
            AssertionError: at the first difference.
        """
        for step in range(steps):
            for _ in range(self.chance.choice([0, 1, 1, 3])):
                self.stage()
            self.call()
            assert not self.both.found, f"step {step}: {self.both.found[0]}"

    def stage(self) -> None:
        """Stages one or several requests, perhaps ones to be refused."""
        chance, both, shape = self.chance, self.both, self.both.shape
        if not self.plain:
            both.redirect(chance.random() < 0.1)
        row = chance.randrange(shape.max_num_reqs)
        overwrite = chance.random() < 0.3
        top = 100 if self.plain else chance.choice([100, 2**31 - 1])
        lists = []
        for group, width in enumerate(shape.widths):
            owned = 0 if overwrite else int(both.reference.num_blocks[group, row])
            most = min(width - owned, chance.choice([1, 2, 40]))
            size = chance.randint(0, most)
            lists.append([chance.randint(0 if self.plain else -3, top) for _ in range(size)])
        if chance.random() < 0.3 and not self.plain:
            both.stage_many([row], [lists], [overwrite])
        else:
            both.stage(row, *lists, overwrite=overwrite)
        if not self.plain and chance.random() < 0.1:
            wide = [*lists[:-1], [1] * (shape.widths[-1] + 1)]
            both.must_refuse("too wide", lambda: both.it.append_block_ids(row, wide, overwrite))

    def batch(self) -> tuple[list[int], list[int], list[int]]:
        """Rows, tokens of each request, and positions."""
        chance, shape, plain = self.chance, self.both.shape, self.plain
        size = chance.randint(1 if plain else 0, shape.max_num_reqs)
        rows = chance.sample(range(shape.max_num_reqs), size)
        if not plain:
            rows = [chance.choice([row, row, row, -1, rows[0]]) for row in rows]
        left, lengths, positions = shape.max_num_batched_tokens, [], []
        for row in rows:
            lengths.append(chance.randint(0, min(left, chance.choice([1, 4, 30]))))
            left -= lengths[-1]
            owned = int(self.both.reference.num_blocks[0, row]) * shape.block_sizes[0]
            first = chance.randint(0, max(owned - lengths[-1], 0))
            for token in range(lengths[-1]):
                odd = not plain and chance.random() < 0.3
                position = chance.choice([-1, -7, 2**32 + 3, chance.randint(0, 200)])
                positions.append(position if odd else first + token)
        return rows, lengths, positions

    def call(self) -> None:
        """Makes one operation."""
        chance, both, shape, plain = self.chance, self.both, self.both.shape, self.plain
        rows, lengths, positions = self.batch()
        padded = chance.choice([len(rows), chance.randint(len(rows), shape.max_num_reqs)])
        total = chance.randint(len(positions), shape.max_num_batched_tokens)
        dtype = chance.choice([torch.int32, torch.int64])
        options: dict[str, Any] = {}
        out = slots_out = None
        if not plain:
            if chance.random() < 0.5:
                options["computed"] = [chance.randint(0, 300) for _ in range(shape.max_num_reqs)]
            out = chance.choice([None, None, padded, padded + 2])
            slots_out = chance.choice([None, None, total, total + 5])
        kind = chance.choice(
            ["prepare_step"] * 3
            + ["gather_and_compute_slot_mappings", "gather", "slots", "apply"]
            + ([] if plain else ["dummies", "dummy_slots", "restore", "snapshot", "published"])
        )
        if kind == "gather":
            both.gather(rows, padded, dtype, out=out, **options)
        elif kind == "slots":
            more = [] if plain else [5] * chance.randint(0, 3)
            both.slots(ints(rows, dtype), lengths, [*positions, *more], total, slots_out, 3)
        elif kind == "apply":
            both.apply()
        elif kind == "dummies":
            for views in both.dummies(padded):
                for view in views:
                    view.fill_(5)
        elif kind == "dummy_slots":
            both.dummy_slots(total)
        elif kind == "restore":
            both.restore(chance.choice(self.states))
        elif kind == "snapshot":
            self.states = [*self.states[-3:], both.it.snapshot()]
        elif kind == "published":
            both.capture(rows, lengths, positions, (padded, total))
        else:
            outs = {"out": out, "slots_out": slots_out}
            both.together(kind, rows, lengths, positions, (padded, total), dtype, **options, **outs)


# ------------------------------------------------------------------------------------- sizes


def filled(both: Both, row: int, *counts: int, first: int = 10) -> None:
    """Stages so many blocks for a row and applies them."""
    both.stage(row, *[list(range(first, first + count)) for count in counts], overwrite=True)
    both.apply()


@demo
def sizes_product_in_int32() -> str:
    both = Both("sizes_product_in_int32", layout([16]))
    both.stage(0, [2**27])
    both.apply()
    both.slots([0], [1], [3])
    return both.result()


@demo
def sizes_column_in_float32() -> str:
    both = Both("sizes_column_in_float32", layout([4096], [5000], 2))
    filled(both, 1, 4100)
    both.slots([1], [1], [4096 * 4097 - 1])
    return both.result()


@demo
def sizes_position_in_int32() -> str:
    both = Both("sizes_position_in_int32", layout())
    filled(both, 0, 3)
    both.slots([0], [2], [1, 2**32 + 1])
    return both.result()


@demo
def sizes_chunk_of_one_more() -> str:
    both = Both("sizes_chunk_of_one_more", layout([4], [70]))
    filled(both, 0, 65)
    both.gather([0])
    return both.result()


@demo
def sizes_records_beyond_256() -> str:
    both = Both("sizes_records_beyond_256", layout([4], [2], 260))
    for row in range(257):
        both.stage(row, [row])
    both.apply()
    return both.result()


@demo
def sizes_single_request_short_cut() -> str:
    both = Both("sizes_single_request_short_cut", layout())
    for row in range(3):
        filled(both, row, 2)
    both.gather([0, 1, 2])
    both.gather([1])
    return both.result()


@demo
def sizes_magic_division() -> str:
    both = Both("sizes_magic_division", layout([1000], [7000], 1))
    both.stage(0, list(range(7000)))
    both.apply()
    both.slots([0], [24], [1000 * (6900 + i) - 1 for i in range(24)])
    return both.result()


@demo
def sizes_batch_index_in_uint8() -> str:
    both = Both("sizes_batch_index_in_uint8", layout([4], [2], 260, 300))
    for row in (0, 256):
        both.stage(row, [row + 1])
    both.apply()
    both.slots(range(257), [1] * 257, [0] * 257)
    return both.result()


@demo
def sizes_groups_in_a_byte() -> str:
    both = Both("sizes_groups_in_a_byte", layout([4] * 9, [4] * 9))
    both.stage(0, *[[group + 1] for group in range(9)])
    both.apply()
    return both.result()


@demo
def sizes_block_of_one_token() -> str:
    both = Both("sizes_block_of_one_token", layout([1], [4]))
    filled(both, 0, 4)
    both.slots([0], [2], [3, 4])
    return both.result()


@demo
def sizes_one_slot_left() -> str:
    both = Both("sizes_one_slot_left", layout(tokens=8))
    filled(both, 0, 2)
    both.slots([0], [8], range(8))
    both.slots([0], [7], range(7))
    return both.result()


@demo
def sizes_start_in_15_bits() -> str:
    both = Both("sizes_start_in_15_bits", layout([1], [33000], 2))
    filled(both, 0, 32768)
    both.stage(0, [5])
    both.apply()
    return both.result()


@demo
def sizes_zero_in_fours() -> str:
    both = Both("sizes_zero_in_fours", layout([4], [6]))
    both.garbage()
    both.gather([], 2)
    return both.result()


# -------------------------------------------------------------------------------------- time


@demo
def time_step_number_in_a_byte() -> str:
    both = Both("time_step_number_in_a_byte", layout([4], [2], 1))
    for step in range(257):
        both.stage(0, [step + 1], overwrite=True)
        both.apply()
    return both.result()


@demo
def time_slots_forget_dirty_rows() -> str:
    both = Both("time_slots_forget_dirty_rows", layout())
    for row in range(3):
        filled(both, row, 2)
    both.gather([0, 1, 2])
    both.slots([0], [1], [0])
    both.found.clear()
    both.gather([0])
    return both.result()


@demo
def time_slots_use_gathered_mapping() -> str:
    both = Both("time_slots_use_gathered_mapping", layout())
    filled(both, 0, 2)
    filled(both, 1, 2, first=30)
    both.gather([0])
    both.slots([1], [1], [0])
    return both.result()


@demo
def time_second_publication_drops_first() -> str:
    both = Both("time_second_publication_drops_first", layout())
    step = both.capture([0], [1], [0], (1, 1))
    both.stage(0, [5])
    step.publish()
    both.stage(1, [6])
    step.publish()
    both.apply()
    return both.result()


@demo
def time_redirect_read_at_apply() -> str:
    both = Both("time_redirect_read_at_apply", layout())
    both.redirect(True)
    both.stage(0, [5, 6])
    both.redirect(False)
    both.apply()
    return both.result()


@demo
def time_early_flush() -> str:
    both = Both("time_early_flush", layout(rows=70))
    for row in range(65):
        both.stage(row, [row + 1])
    both.gather([0])
    return both.result()


@demo
def time_window_of_earlier_call() -> str:
    both = Both("time_window_of_earlier_call", layout(sliding_window_reach=[4]))
    filled(both, 0, 4)
    both.gather([0], computed=[12] * 6)
    both.gather([0])
    return both.result()


@demo
def time_pads_to_last_token() -> str:
    both = Both("time_pads_to_last_token", layout())
    filled(both, 0, 4)
    both.slots([0], [1], [0])
    both.garbage()
    both.slots([0], [1], [0])
    return both.result()


@demo
def time_dummies_are_clean() -> str:
    both = Both("time_dummies_are_clean", layout())
    for views in both.dummies(3):
        for view in views:
            view.fill_(9)
    both.found.clear()
    both.gather([], 1)
    return both.result()


@demo
def time_known_zero_rows() -> str:
    both = Both("time_known_zero_rows", layout())
    both.gather([0], 4)
    both.garbage()
    both.gather([0], 4)
    return both.result()


@demo
def time_hundred_quiet_steps() -> str:
    both = Both("time_hundred_quiet_steps", layout())
    for _ in range(101):
        both.apply()
    both.stage(0, [4])
    both.apply()
    return both.result()


@demo
def time_redirect_sticks_to_row() -> str:
    both = Both("time_redirect_sticks_to_row", layout())
    both.redirect(True)
    both.stage(0, [5], overwrite=True)
    both.apply()
    both.redirect(False)
    both.stage(0, [6])
    both.apply()
    return both.result()


# ------------------------------------------------------------------------------------ memory


@demo
def memory_mapping_by_address() -> str:
    both = Both("memory_mapping_by_address", layout())
    filled(both, 0, 2)
    filled(both, 1, 2, first=30)
    rows = ints([0])
    both.gather(rows)
    rows[0] = 1
    both.gather(rows)
    return both.result()


@demo
def memory_starts_by_version() -> str:
    both = Both("memory_starts_by_version", layout())
    filled(both, 0, 2)
    filled(both, 1, 2, first=30)
    starts = np.array([0, 1, 2], np.int32)
    tensor = torch.from_numpy(starts)
    both.slots([0, 1], tensor, [0, 1])
    starts[1] = 2
    both.slots([0, 1], tensor, [0, 1])
    return both.result()


@demo
def memory_pads_the_view_only() -> str:
    both = Both("memory_pads_the_view_only", layout())
    filled(both, 0, 3)
    both.slots([0], [8], range(8))
    both.slots([0], [1], [0], 2)
    return both.result()


@demo
def memory_zeroes_all_of_out() -> str:
    both = Both("memory_zeroes_all_of_out", layout())
    filled(both, 0, 3)
    both.gather([0], 2, out=4)
    return both.result()


@demo
def memory_out_rows_side_by_side() -> str:
    both = Both("memory_out_rows_side_by_side", layout([4, 4], [8, 8]))
    filled(both, 0, 3, 3)
    both.slots([0], [2], [0, 1], out=4, wider=2)
    return both.result()


@demo
def memory_keeps_arrays_of_ids() -> str:
    both = Both("memory_keeps_arrays_of_ids", layout())
    ids = array("i", [5, 6])
    for tables in (both.it, both.reference):
        tables.append_block_ids(0, [ids], False)
    ids[0] = 99
    both.apply()
    return both.result()


@demo
def memory_contiguous_slots() -> str:
    both = Both("memory_contiguous_slots", layout([4, 4], [8, 8]))
    both.slots([0], [2], [0, 1])
    return both.result()


@demo
def memory_ignores_the_offset() -> str:
    both = Both("memory_ignores_the_offset", layout())
    filled(both, 0, 3)
    filled(both, 1, 3, first=30)
    longer = ints([0, 1, 3, 0, 2, 3], torch.int32)
    both.slots([0, 1], longer[3:], [0, 1, 2])
    return both.result()


@demo
def memory_pads_in_eights() -> str:
    both = Both("memory_pads_in_eights", layout())
    both.slots([0], [2], [0, 1], out=5, wider=9)
    return both.result()


@demo
def memory_out_list_by_id() -> str:
    both = Both("memory_out_list_by_id", layout())
    filled(both, 0, 3)
    out = [torch.zeros(2, 8, dtype=torch.int32)]
    both.it.gather_block_tables(ints([0]), 1, out)
    out[0] = torch.zeros(2, 8, dtype=torch.int32)
    both.it.gather_block_tables(ints([0]), 1, out)
    both.note("second gather", "out[0]", out[0][0, :3], [10, 11, 12])
    return both.result()


@demo
def memory_whole_narrow_rows() -> str:
    both = Both("memory_whole_narrow_rows", layout())
    both.garbage()
    filled(both, 0, 3)
    both.gather([0])
    return both.result()


@demo
def memory_two_sets_of_slots() -> str:
    both = Both("memory_two_sets_of_slots", layout())
    for _ in range(3):
        both.slots([0], [2], [0, 1])
    return both.result()


@demo
def memory_clamps_positions() -> str:
    both = Both("memory_clamps_positions", layout())
    filled(both, 0, 3)
    both.slots([0], [2], [-1, 1])
    return both.result()


# --------------------------------------------------------------------------------- arguments


@demo
def arguments_step_applies_first() -> str:
    both = Both("arguments_step_applies_first", layout())
    both.stage(0, [4])
    batch = (ints([0, 1]), starts_of([1, 1]), ints([0, 0]))
    both.must_refuse("too few rows", lambda: both.it.prepare_step(*batch, 1, 2))
    return both.result()


@demo
def arguments_gather_before_tokens() -> str:
    both = Both("arguments_gather_before_tokens", layout())
    filled(both, 0, 3)
    batch = (ints([0]), starts_of([1]), ints([0], torch.int32))
    call = both.it.gather_and_compute_slot_mappings
    both.must_refuse("positions in int32", lambda: call(*batch, 1, 1))
    return both.result()


@demo
def arguments_append_group_by_group() -> str:
    both = Both("arguments_append_group_by_group", layout([4, 4], [8, 1]))
    both.must_refuse("too wide", lambda: both.it.append_block_ids(0, [[1], [2, 3]], False))
    return both.result()


@demo
def arguments_positions_in_int32() -> str:
    both = Both("arguments_positions_in_int32", layout())
    batch = (ints([0]), starts_of([1]), ints([0], torch.int32))
    both.must_refuse("positions in int32", lambda: both.it.compute_slot_mappings(*batch, 1))
    return both.result()


@demo
def arguments_strided_mapping() -> str:
    both = Both("arguments_strided_mapping", layout())
    rows = ints([0, 1, 2, 3])[::2]
    both.must_refuse("a strided mapping", lambda: both.it.gather_block_tables(rows, 2))
    return both.result()


@demo
def arguments_row_twice() -> str:
    both = Both("arguments_row_twice", layout())
    filled(both, 2, 3)
    both.gather([2, 2])
    return both.result()


@demo
def arguments_negative_ids() -> str:
    both = Both("arguments_negative_ids", layout())
    both.stage(0, [-3])
    both.apply()
    both.slots([0], [1], [1])
    return both.result()


def sharded(name: str, ranks: int, rank: int, **options: Any) -> Both:
    """Tables of one rank, with a filled row."""
    both = Both(name, layout([4, 4], [8, 8], cp_size=ranks, cp_rank=rank, **options))
    filled(both, 0, 8, 8)
    return both


@demo
def arguments_ranks_by_mask() -> str:
    both = sharded("arguments_ranks_by_mask", 3, 2)
    both.slots([0], [20], range(20))
    return both.result()


@demo
def arguments_rank_beside_unsharded() -> str:
    both = sharded("arguments_rank_beside_unsharded", 2, 1, dcp_sharded=[True, False])
    both.slots([0], [8], range(8))
    return both.result()


@demo
def arguments_padded_to_live() -> str:
    both = Both("arguments_padded_to_live", layout())
    rows = ints([2, -1, -1])
    both.must_refuse("one row for three", lambda: both.it.gather_block_tables(rows, 1))
    return both.result()


@demo
def arguments_any_negative_is_dummy() -> str:
    both = Both("arguments_any_negative_is_dummy", layout(), validate=True)
    both.must_refuse("row -2", lambda: both.it.gather_block_tables(ints([-2]), 1))
    return both.result()


@demo
def arguments_ids_wrap() -> str:
    both = Both("arguments_ids_wrap", layout())
    ids = np.array([2**31 + 5])
    both.must_refuse("id 2^31 + 5", lambda: both.it.append_block_ids(0, [ids], False))
    return both.result()


@demo
def arguments_disabled_group_in_out() -> str:
    shape = layout([4, 4], [8, 8], slot_mapping_enabled=[True, False])
    both = Both("arguments_disabled_group_in_out", shape)
    both.slots([0], [2], [0, 1], out=4)
    return both.result()


@demo
def arguments_window_without_out() -> str:
    both = Both("arguments_window_without_out", layout(sliding_window_reach=[4]))
    filled(both, 0, 4)
    both.gather([0], computed=[12] * 6, out=1)
    return both.result()


@demo
def arguments_window_of_every_rank() -> str:
    both = sharded("arguments_window_of_every_rank", 2, 0, sliding_window_reach=[4, 4])
    both.gather([0], computed=[12] * 6)
    return both.result()


@demo
def arguments_wider_out() -> str:
    both = Both("arguments_wider_out", layout())
    out = [torch.zeros(2, 9, dtype=torch.int32)]
    both.must_refuse("a wider out", lambda: both.it.gather_block_tables(ints([0]), 1, out))
    return both.result()


# ------------------------------------------------------------------------------------- paths


@demo
def paths_carried_column_in_a_byte() -> str:
    both = Both("paths_carried_column_in_a_byte", layout([1], [300], 2))
    filled(both, 0, 260)
    both.stage(0, [7])
    both.together("prepare_step", [0], [1], [0], (1, 1))
    return both.result()


@demo
def paths_publish_settles_never() -> str:
    both = Both("paths_publish_settles_never", layout())
    step = both.capture([0], [1], [0], (1, 1))
    both.stage(0, [5])
    step.publish()
    both.apply()
    return both.result()


@demo
def paths_publish_keeps_dirty_rows() -> str:
    both = Both("paths_publish_keeps_dirty_rows", layout())
    for row in range(3):
        filled(both, row, 2)
    step = both.capture([0], [1], [0], (1, 1))
    both.gather([0, 1, 2])
    step.publish()
    for table in both.reference.input_block_tables:
        table[1:3] = 0
    both.reference.num_dirty_rows = 1
    both.compare("publish")
    return both.result()


@demo
def paths_publish_without_room() -> str:
    both = Both("paths_publish_without_room", layout([4] * 3, [40] * 3, 2))
    for row in range(2):
        both.stage(row, *[range(1, 20)] * 3)
    both.capture([0], [1], [0], (1, 1))
    return both.result()


@demo
def paths_out_is_dirty() -> str:
    both = Both("paths_out_is_dirty", layout())
    for row in range(4):
        filled(both, row, 2)
    both.gather([0, 1, 2, 3])
    both.gather([0], out=1)
    both.found.clear()
    both.gather([0])
    return both.result()


@demo
def paths_dummy_slots_partly() -> str:
    both = Both("paths_dummy_slots_partly", layout())
    both.garbage()
    both.dummy_slots(2)
    return both.result()


@demo
def paths_many_without_redirect() -> str:
    both = Both("paths_many_without_redirect", layout())
    both.redirect(True)
    both.stage_many([0], [[[4, 5]]], [False])
    both.apply()
    return both.result()


@demo
def paths_many_one_by_one() -> str:
    both = Both("paths_many_one_by_one", layout())
    lists = [[[1]], [[2] * 9]]
    both.must_refuse("a wide row", lambda: both.it.append_many([0, 1], lists, [False, False]))
    return both.result()


@demo
def paths_int32_dummies() -> str:
    both = Both("paths_int32_dummies", layout())
    filled(both, 5, 3)
    both.gather([0, -1], dtype=torch.int32)
    return both.result()


@demo
def paths_decode_by_size() -> str:
    both = Both("paths_decode_by_size", layout())
    filled(both, 0, 3)
    filled(both, 1, 3, first=30)
    both.slots([0, 1], [2, 0], [0, 1])
    return both.result()


@demo
def paths_long_writes_from_zero() -> str:
    both = Both("paths_long_writes_from_zero", layout([4], [40]))
    filled(both, 0, 3)
    both.stage(0, range(50, 67))
    both.apply()
    return both.result()


@demo
def paths_slots_out_needs_out() -> str:
    both = Both("paths_slots_out_needs_out", layout())
    filled(both, 0, 3)
    method = "gather_and_compute_slot_mappings"
    both.together(method, [0], [2], [0, 1], (1, 2), slots_out=4)
    return both.result()


@demo
def paths_branch_of_many_groups() -> str:
    shape = layout([4] * 5, [8] * 5, sliding_window_reach=[4] * 5)
    both = Both("paths_branch_of_many_groups", shape)
    filled(both, 0, *[4] * 5)
    both.gather([0], computed=[12] * 6)
    return both.result()


@demo
def paths_slots_truncate() -> str:
    both = Both("paths_slots_truncate", layout())
    filled(both, 0, 3)
    both.slots([0], [2], [-1, 1])
    return both.result()


@demo
def paths_long_prompt_branch() -> str:
    both = Both("paths_long_prompt_branch", layout([4], [40], tokens=100))
    filled(both, 0, 30)
    both.slots([0], [64], [*range(63), 100])
    return both.result()


@demo
def paths_validate_before_state() -> str:
    both = Both("paths_validate_before_state", layout(), validate=True)
    both.slots([0, 1], [1, 1], [0, 0])
    starts = ints([0, 1, 1], torch.int32)
    try:
        both.slots([0], starts, [0])
    except ValueError as error:
        return f"a legal call was refused: {error}"
    return both.result()


# ------------------------------------------------------------------------------------- state


@demo
def state_snapshot_shares_counts() -> str:
    both = Both("state_snapshot_shares_counts", layout())
    state = both.it.snapshot()
    both.stage(0, [5])
    both.note("after an append", "num_blocks of the snapshot", state.num_blocks[0, 0], 0)
    return both.result()


@demo
def state_restore_keeps_staged() -> str:
    both = Both("state_restore_keeps_staged", layout())
    state = both.reference.snapshot()
    both.stage(0, [5])
    both.restore(state)
    both.apply()
    return both.result()


@demo
def state_restore_forgets_dirty() -> str:
    both = Both("state_restore_forgets_dirty", layout())
    both.garbage()
    state = both.reference.snapshot()
    both.gather([0, 1, 2])
    both.restore(state)
    both.found.clear()
    both.gather([0])
    return both.result()


@demo
def state_sizes_by_number_of_groups() -> str:
    first = Both("state_sizes_by_number_of_groups", layout([4]))
    filled(first, 0, 2)
    first.slots([0], [2], [0, 1])
    first.it.layout = second = layout([8])
    both = Both("state_sizes_by_number_of_groups", second)
    both.it = type(first.it)(second, "cpu")
    both.addresses = both._addresses()
    filled(both, 0, 2)
    both.slots([0], [2], [4, 5])
    return both.result()


@demo
def state_shared_list_of_rows() -> str:
    both = Both("state_shared_list_of_rows", layout())
    other = type(both.it)(both.shape, "cpu")
    both.stage(0, [5, 6])
    other.append_block_ids(1, [[7]], False)
    other.apply_staged_writes()
    both.apply()
    both.gather([0])
    return both.result()


@demo
def state_empty_overwrite_is_nothing() -> str:
    both = Both("state_empty_overwrite_is_nothing", layout())
    filled(both, 0, 3)
    both.stage(0, [], overwrite=True)
    both.apply()
    both.gather([0])
    return both.result()


@demo
def state_overwrite_keeps_staged_tail() -> str:
    both = Both("state_overwrite_keeps_staged_tail", layout())
    both.stage(0, [1, 2, 3])
    both.stage(0, [4], overwrite=True)
    both.apply()
    return both.result()


@demo
def state_gather_sees_staged_counts() -> str:
    both = Both("state_gather_sees_staged_counts", layout())
    both.garbage()
    both.stage(0, [1, 2, 3])
    both.gather([0])
    return both.result()


@demo
def state_refused_overwrite_drops() -> str:
    both = Both("state_refused_overwrite_drops", layout())
    both.stage(0, [1, 2, 3])
    both.must_refuse("too wide", lambda: both.it.append_block_ids(0, [[1] * 9], True))
    both.apply()
    return both.result()


@demo
def state_restore_without_applied_counts() -> str:
    both = Both("state_restore_without_applied_counts", layout())
    both.garbage()
    both.stage(0, [1, 2, 3])
    both.restore(both.reference.snapshot())
    both.gather([0])
    return both.result()


@demo
def state_same_ids_are_skipped() -> str:
    both = Both("state_same_ids_are_skipped", layout())
    filled(both, 0, 3)
    both.garbage()
    filled(both, 0, 2)
    both.gather([0])
    return both.result()


@demo
def state_refused_gather_forgets_dirty() -> str:
    both = Both("state_refused_gather_forgets_dirty", layout())
    filled(both, 2, 3)
    both.gather([0, 1, 2])
    both.must_refuse("seven rows", lambda: both.it.gather_block_tables(ints([0]), 7))
    return both.result()


@demo
def state_restore_replaces_tables() -> str:
    both = Both("state_restore_replaces_tables", layout())
    both.restore(both.it.snapshot())
    return both.result()


# ----------------------------------------------------------------------- reads out of bounds


def guarded(count: int, dtype: type, at_end: bool) -> torch.Tensor:
    """A vector with a page that cannot be read right behind it, or right before it."""
    page = mmap.PAGESIZE
    size = -(-count * np.dtype(dtype).itemsize // page) * page
    memory = mmap.mmap(-1, size + 2 * page)
    KEPT.append(memory)
    whole = np.frombuffer(memory, np.uint8)
    protect = ctypes.CDLL(None).mprotect
    for first in (0, page + size):
        where = ctypes.c_void_p(whole.ctypes.data + first)
        assert protect(where, ctypes.c_size_t(page), 0) == 0
    inner = whole[page : page + size].view(dtype)
    return torch.from_numpy(inner[-count:] if at_end else inner[:count])


KEPT: list[object] = []


def child(name: str, what: str) -> None:
    """Computes slots with an argument beside a page that cannot be read."""
    if name == "fused":
        from bt_kernels.variants.fused import Variant
    else:
        Variant = load(name)
    it: Any = Variant(layout(), "cpu")
    rows, starts, positions = ints([0, -1]), starts_of([2, 1]), ints([0, 1, 2])
    if what == "positions":
        positions = guarded(3, np.int64, True).copy_(positions)
    elif what == "idx_mapping":
        rows = guarded(2, np.int64, True).copy_(rows)
    else:
        it.block_tables[0] = guarded(6 * 8, np.int32, False).view(6, 8)
        it.init_block_table_layout_tensors()
    it.append_block_ids(0, [[5]], False)
    it.apply_staged_writes()
    assert it.compute_slot_mappings(rows, starts, positions, 3).tolist() == [[20, 21, -1]]


def reads_outside(name: str, what: str) -> str:
    """Shows that a variant is ended by a guard page that a shipped one does not touch."""
    codes = []
    for which in ("fused", name):
        command = [sys.executable, __file__, "--child", which, what]
        codes.append(subprocess.run(command, capture_output=True, timeout=TIMEOUT_S).returncode)
    assert codes == [0, -signal.SIGSEGV], codes
    return f"reads outside {what}: a guard page ends the process, and not that of fused"


@demo
def memory_reads_behind_positions() -> str:
    return reads_outside("memory_reads_behind_positions", "positions")


@demo
def memory_reads_behind_mapping() -> str:
    return reads_outside("memory_reads_behind_mapping", "idx_mapping")


@demo
def memory_reads_row_of_dummy() -> str:
    return reads_outside("memory_reads_row_of_dummy", "the source table")


# --------------------------------------------------------------------------- more of the six


@demo
def state_views_by_size() -> str:
    first = Both("state_views_by_size", layout())
    first.gather([0])
    both = Both("state_views_by_size", layout())
    both.it = type(first.it)(both.shape, "cpu")
    both.addresses = both._addresses()
    both.gather([0])
    return both.result()


@demo
def state_restore_once() -> str:
    both = Both("state_restore_once", layout())
    filled(both, 0, 3)
    state = both.reference.snapshot()
    both.restore(state)
    both.gather([0])
    both.restore(state)
    return both.result()


@demo
def state_num_blocks_replaced() -> str:
    both = Both("state_num_blocks_replaced", layout())
    state = both.reference.snapshot()
    filled(both, 0, 3)
    both.restore(state)
    both.stage(0, [5])
    both.apply()
    return both.result()


@demo
def state_snapshot_shares_slots() -> str:
    both = Both("state_snapshot_shares_slots", layout(tokens=4))
    filled(both, 0, 2)
    both.slots([0], [4], range(4))
    state, expected = both.it.snapshot(), both.reference.snapshot()
    both.slots([0], [1], [0])
    both.note("after a step", "slots of the snapshot", state.slot_mappings, expected.slot_mappings)
    return both.result()


@demo
def state_other_tables_counts() -> str:
    both = Both("state_other_tables_counts", layout())
    other = Reference(both.shape, "cpu")
    other.append_block_ids(1, [[5]], False)
    other.apply_staged_writes()
    filled(both, 0, 2)
    both.restore(other.snapshot())
    return both.result()


@demo
def sizes_zeroes_1024_rows() -> str:
    both = Both("sizes_zeroes_1024_rows", layout([4], [2], 1030))
    both.garbage()
    both.gather([0], 1030)
    return both.result()


@demo
def sizes_sixteen_tiles_of_padding() -> str:
    both = Both("sizes_sixteen_tiles_of_padding", layout(tokens=16500))
    both.garbage()
    both.slots([0], [1], [0])
    return both.result()


@demo
def sizes_empty_batch_keeps_rows() -> str:
    both = Both("sizes_empty_batch_keeps_rows", layout())
    for row in range(2):
        filled(both, row, 2)
    both.gather([0, 1])
    both.gather([])
    return both.result()


@demo
def sizes_empty_batch_keeps_slots() -> str:
    both = Both("sizes_empty_batch_keeps_slots", layout())
    filled(both, 0, 2)
    both.slots([0], [2], [0, 1])
    both.slots([], [], [])
    return both.result()


@demo
def paths_window_in_first_chunk() -> str:
    shape = layout([1], [140], sliding_window_reach=[2])
    both = Both("paths_window_in_first_chunk", shape)
    filled(both, 0, 140)
    both.gather([0], computed=[135] * 6)
    return both.result()


@demo
def paths_outs_by_width() -> str:
    both = Both("paths_outs_by_width", layout([4, 4], [8, 8]))
    filled(both, 0, 2, 2)
    both.gather([0], out=1)
    return both.result()


@demo
def paths_window_after_out() -> str:
    both = Both("paths_window_after_out", layout(sliding_window_reach=[4]))
    filled(both, 0, 4)
    both.gather([0], out=1)
    both.gather([0], computed=[12] * 6)
    return both.result()


@demo
def arguments_interleave_of_a_block() -> str:
    both = sharded("arguments_interleave_of_a_block", 2, 0, cp_interleave=4)
    both.slots([0], [20], range(20))
    return both.result()


@demo
def arguments_negative_row() -> str:
    both = Both("arguments_negative_row", layout())
    both.must_refuse("row -1", lambda: both.it.append_block_ids(-1, [[5]], False))
    return both.result()


@demo
def arguments_falling_starts() -> str:
    both = Both("arguments_falling_starts", layout(), validate=True)
    batch = (ints([0, 1, 2]), ints([0, 2, 1, 3], torch.int32), ints([0, 1, 2]))
    both.must_refuse("falling starts", lambda: both.it.compute_slot_mappings(*batch, 3))
    return both.result()


@demo
def arguments_validate_at_the_start() -> str:
    both = Both("arguments_validate_at_the_start", layout())
    both.it.validate = True
    both.must_refuse("row -2", lambda: both.it.gather_block_tables(ints([-2]), 1))
    return both.result()


@demo
def time_arena_of_4096_ids() -> str:
    both = Both("time_arena_of_4096_ids", layout([1], [3000], 2))
    both.stage(0, range(3000))
    both.stage(1, range(5000, 8000))
    both.apply()
    return both.result()


@demo
def time_dummies_zero_what_is_asked() -> str:
    both = Both("time_dummies_zero_what_is_asked", layout())
    for row in range(4):
        filled(both, row, 2)
    both.gather(range(4))
    both.dummies(1)
    return both.result()


@demo
def time_same_batch_is_skipped() -> str:
    both = Both("time_same_batch_is_skipped", layout())
    filled(both, 0, 2)
    both.slots([0], [2], [0, 1])
    both.dummy_slots(2)
    both.slots([0], [2], [0, 1])
    return both.result()


# ------------------------------------------------------------------------------------- right


def compare_right(name: str) -> str:
    """Compares a right variant with the reference in a few hundred steps of many layouts."""
    steps = 0
    for seed in range(12):
        Fuzz(name, seed, "right").run(30)
        steps += 30
    return f"equal to the reference in {steps} random steps"


def run_one(name: str) -> str:
    """Makes one demo and returns what it says."""
    if (HERE / "right" / f"{name}.py").exists():
        return compare_right(name)
    return DEMOS[name]()


def run_apart(name: str) -> tuple[str, str]:
    """Makes a demo in a process of its own; returns a word for how it went, and what it said."""
    if name in ARGUED:
        return "argued", ARGUED[name]
    command = [sys.executable, __file__, "--one", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "FAILED", f"took more than {TIMEOUT_S} s"
    said = (done.stdout + done.stderr).strip().splitlines() or [""]
    return ("shown" if done.returncode == 0 else "FAILED"), said[-1]


def main(names: Sequence[str]) -> int:
    """Runs demos in processes of their own; returns how many did not show what they are to."""
    if names[:1] == ["--child"]:
        child(names[1], names[2])
        return 0
    if names[:1] == ["--one"]:
        sys.stdout.write(run_one(names[1]) + "\n")
        return 0
    wrong = sorted(path.stem for path in (HERE / "wrong").glob("*.py"))
    right = sorted(path.stem for path in (HERE / "right").glob("*.py"))
    failed, shown, argued = 0, 0, 0
    asked = list(names or [*wrong, *right])
    with ThreadPoolExecutor(2) as pool:
        for name, (word, said) in zip(asked, pool.map(run_apart, asked), strict=True):
            failed += word == "FAILED"
            shown += word == "shown"
            argued += word == "argued"
            sys.stdout.write(f"{word:7} {name}: {said}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{shown} shown, {argued} argued, {failed} failed\n")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
