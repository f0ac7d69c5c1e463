"""Each element of a step has one writer, however the step is cut; and kernels write what that says.

Sizes are drawn on both sides of every one at which the code branches, once with the constants of a
GPU, and once with small ones, by which a few rows and tokens take every way.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from fuzz.draw import Limits, layout_of, step_of, writes_of
from fuzz.oracle import Oracle
from support import cuts
from support.quick_triton import QuickKernels
from support.variants import classes
from triton.runtime import interpreter

from bt_kernels.device_code import one_launch_captured_kernel, one_launch_carrying_kernel
from bt_kernels.interface import TableState

WAYS = ("carried", "carried", "pinned", "captured")
SMALL = Limits(rows=(1, 3, 7), tokens=(5, 40, 90), widths=(1, 3, 8, 20, 40), elements=600)
# With eight groups, 128 rows and 129 are on both sides of the size from which programs have two.
LARGE = Limits(rows=(127, 128, 129, 140), tokens=(40, 400, 1100), widths=(1, 2, 3), elements=2_000)
WIDE = Limits(rows=(1, 3), tokens=(8,), widths=(1023, 1024, 1025, 1537, 2600), elements=10_000)
TINY = Limits(rows=(1, 3), tokens=(5, 20), widths=(1, 5, 13), elements=40)
CUTS = 100_000
PARTS = 8
TIED = 2_000
STEPS_OF_TABLES = 40


@dataclass
class Drawn:
    """A step that has been drawn, with its tensors."""

    mapping: torch.Tensor
    starts: torch.Tensor
    positions: torch.Tensor
    rows: int
    tokens: int
    computed: torch.Tensor | None
    out: list[torch.Tensor] | None
    slots: torch.Tensor | None


class Cutter:
    """Tables on which drawn steps are made; the constants are those of the time of each call."""

    def __init__(self, seed, limits):
        self.rng = np.random.default_rng(seed)
        self.layout = layout_of(self.rng, limits)
        self.way = WAYS[seed % len(WAYS)]
        self.tables = classes(["one_launch"])["one_launch"](self.layout, "cpu")
        if self.way == "pinned":
            self.tables._carrying = None
        if self.way == "captured":
            self.tables._captured_writes = self.tables._make_captured_writes()

    def draw(self, *, options, same):
        rng, layout = self.rng, self.layout
        step = step_of(rng, layout, layout.max_num_reqs, layout.max_num_batched_tokens)
        self.staged = []
        if rng.random() < 0.6:
            self.staged = writes_of(rng, layout, self.tables.num_blocks, step.rows, same=same)
        for write in self.staged:
            assert self.tables._staged.append(*write, False)
        dtype = torch.int64
        if rng.random() < 0.5 and (abs(step.rows) < 2**31).all():
            dtype = torch.int32
        out = slots = None
        if options and self.way != "captured" and rng.random() < 0.2:
            out = [
                torch.full((step.num_reqs_padded + 1, w), 7, dtype=torch.int32)
                for w in layout.widths
            ]
        if options and self.way != "captured" and rng.random() < 0.2:
            shape = layout.num_groups, step.num_tokens_padded + int(rng.integers(1, 30))
            slots = torch.full((shape[0], shape[1] + 5), 7)[:, : shape[1]]  # rows lie apart
        computed = step.computed if options else None
        # Both may be longer than the batch; positions may be as long as there are slots.
        room = layout.max_num_batched_tokens - len(step.positions)
        spare = rng.integers(-9, 99, int(rng.choice((0, min(room, 3), room))))
        return Drawn(
            torch.tensor(step.rows, dtype=dtype),
            torch.tensor([0, *np.cumsum(step.lengths), *spare[:2]], dtype=torch.int32),
            torch.tensor(np.concatenate((step.positions, spare))),
            step.num_reqs_padded,
            step.num_tokens_padded,
            None if computed is None else torch.tensor(computed, dtype=torch.int32),
            out,
            slots,
        )

    def known(self):
        """Return the intervals that are staged, and the groups."""
        captured = self.tables._captured_writes
        if captured is not None and not captured.has_room(self.tables._staged):
            self.tables.apply_staged_writes()  # by a launch of its own, as in `publish`
        intervals = cuts.intervals_of(self.tables)
        return intervals, cuts.groups_of(self.tables, intervals)

    def parts(self, step):
        """Return calls that make the step in separate launches, or in one after an apply."""
        tables = self.tables
        yield tables.apply_staged_writes
        options = {"out": step.out, "num_computed_tokens": step.computed}
        batch = step.mapping, step.starts, step.positions
        if self.rng.random() < 0.5:
            rows, tokens = step.rows, step.tokens
            yield lambda: tables.gather_and_compute_slot_mappings(
                *batch, rows, tokens, **options, slots_out=step.slots
            )
        else:
            yield lambda: tables.gather_block_tables(step.mapping, step.rows, **options)
            yield lambda: tables.compute_slot_mappings(*batch, step.tokens, step.slots)

    def make(self, step):
        """Make the step in the way of the tables."""
        inputs = step.mapping, step.starts, step.positions, step.rows, step.tokens
        if self.way == "captured":
            self.tables.capture_step(*inputs, num_computed_tokens=step.computed)
        else:
            self.tables.prepare_step(
                *inputs, num_computed_tokens=step.computed, out=step.out, slots_out=step.slots
            )


def limits_of(rng, large):
    """Draw what to draw from, small mostly, and so often what takes long."""
    return rng.choices((SMALL, WIDE, LARGE), (70, 30 - 100 * large, 100 * large))[0]


def sizes_of(rng, monkeypatch, small):
    return cuts.sizes(monkeypatch, cuts.small_sizes(rng) if small else cuts.gpu_sizes())


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_each_element_has_one_writer(monkeypatch, part):
    """In 100,000 cuts of groups, an eighth of them here, and so many of each commit."""
    made = 0
    rng = random.Random(part)
    while made < CUTS // PARTS:
        limits = limits_of(rng, large=0.15)
        with (
            sizes_of(rng, monkeypatch, limits is SMALL),
            cuts.noted_launches(monkeypatch) as noted,
        ):
            cutter = Cutter(rng.randrange(2**32), limits)
            for _ in range(STEPS_OF_TABLES):
                step = cutter.draw(options=False, same=True)
                known = cutter.known()
                cutter.make(step)
                cuts.check(noted.pop(), *known)
                made += cutter.layout.num_groups


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_write_what_it_says(monkeypatch, part):
    """In 2,000 cuts of groups, an eighth of them here: to the same places, and what is right.

    Of each commit, one of the eight parts is tried.
    """
    play_tied(monkeypatch, random.Random(part), QuickKernels(), TIED // PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_kernels_write_what_it_says_in_many_cuts(monkeypatch, part):
    play_tied(monkeypatch, random.Random(100 + part), QuickKernels(), TIED)


def test_tritons_interpreter_writes_the_same(monkeypatch):
    """So what is held of the kernels in numpy holds in the interpreter, too."""
    play_tied(monkeypatch, random.Random(5), InterpretedKernels(monkeypatch), 16, TINY)


def play_tied(monkeypatch, rng, kernels, num_cuts, limits=None):
    """Make so many cuts of groups by kernels that note what they write."""
    made = 0
    while made < num_cuts:
        its_limits = limits or limits_of(rng, large=0.05)
        with sizes_of(rng, monkeypatch, its_limits in (SMALL, TINY)):
            cutter = Cutter(rng.randrange(2**32), its_limits)
            oracle = filled(cutter)
            for _ in range(1 if its_limits is LARGE else 6):
                step = cutter.draw(options=True, same=False)
                intervals, groups = cutter.known()
                with cuts.noted_launches(monkeypatch, run=kernels) as noted:
                    stores = kernels.record()
                    cutter.make(step)
                expected = cuts.writers(noted.pop(), intervals, groups)
                hold_same_places(cutter.tables, step, stores, expected)
                hold_same_values(cutter, oracle, step)
                made += cutter.layout.num_groups


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_of_parts_write_what_it_says(monkeypatch, part):
    """A step in separate calls: each launches once, with one writer for each of its elements."""
    play_parts(monkeypatch, random.Random(200 + part), QuickKernels(), TIED // PARTS)


def test_tritons_interpreter_writes_the_same_in_parts(monkeypatch):
    play_parts(monkeypatch, random.Random(6), InterpretedKernels(monkeypatch), 16, TINY)


def play_parts(monkeypatch, rng, kernels, num_cuts, limits=None):
    """Do as `play_tied`, by separate calls."""
    made = 0
    while made < num_cuts:
        its_limits = limits or limits_of(rng, large=0.05)
        with sizes_of(rng, monkeypatch, its_limits in (SMALL, TINY)):
            cutter = Cutter(rng.randrange(2**30) * len(WAYS), its_limits)  # the first way
            oracle = filled(cutter)
            for _ in range(1 if its_limits is LARGE else 6):
                step = cutter.draw(options=True, same=False)
                for call in cutter.parts(step):
                    intervals, groups = cutter.known()
                    with cuts.noted_launches(monkeypatch, run=kernels) as noted:
                        stores = kernels.record()
                        call()
                    if not noted:  # nothing is staged, or no row gathered
                        assert not stores
                        continue
                    (launch,) = noted
                    expected = cuts.writers(launch, intervals, groups)
                    hold_same_places(cutter.tables, step, stores, expected)
                hold_same_values(cutter, oracle, step)
                made += cutter.layout.num_groups


def filled(cutter):
    """Give the tables of a cutter, and an oracle, the same random state."""
    tables, layout, rng = cutter.tables, cutter.layout, cutter.rng
    oracle = Oracle(layout, torch.device("cpu"))
    for source, target in zip(oracle.source, oracle.inputs, strict=True):
        source.random_(), target.random_()
    oracle.slots.random_()
    widths = np.array(layout.widths)[:, None]
    counts = rng.integers(0, widths + 1, tables.num_blocks.shape)
    kind = rng.random()
    if kind < 0.3:  # writes are then at the ends of rows
        counts = np.where(rng.random(counts.shape) < 0.5, widths, counts)
    elif kind < 0.6:  # no row is long, though one of a dummy request is zeroed whole
        counts = np.minimum(counts, rng.integers(0, 9))
    oracle.num_blocks[:], oracle._applied = counts, torch.tensor(counts)
    oracle.dirty = int(rng.integers(0, layout.max_num_reqs + 1))
    state = TableState(oracle.source, oracle.inputs, oracle.slots, counts, oracle.dirty)
    tables.restore(state)
    return oracle


def hold_same_places(tables, step, stores, expected):
    """Hold that programs stored to the elements that they are expected to write."""
    slots = tables.slot_mappings if step.slots is None else step.slots
    buffers = {("num_blocks", 0): tables.num_blocks_on_device}
    for group, source in enumerate(tables.block_tables):
        buffers["source", group] = source
        buffers["target", group] = (step.out or tables.input_block_tables)[group]
        buffers["slots", group] = slots[group]
    noted = [np.stack((np.full(len(at), p), at)) for p, all_ in stores.items() for at in all_]
    stored = np.concatenate([np.zeros((2, 0), np.int64), *noted], axis=1)
    if tables._captured_writes is not None:  # the number of the step, for the host
        stored = stored[:, stored[1] != tables._captured_writes._applied.tensor.data_ptr()]
    for place, written in expected.items():
        first, size = buffers[place].data_ptr(), buffers[place].itemsize
        inside = (stored[1] >= first) & (stored[1] < first + size * buffers[place].numel())
        found = np.stack((stored[0], (stored[1] - first) // size))[:, inside]
        stored = stored[:, ~inside]
        wanted = np.stack((written.parts, written.elements))
        assert same_pairs(found, wanted), f"{place}: {explain(found, wanted)}"
    assert stored.size == 0, f"{stored.shape[1]} stores to other places"


def same_pairs(found, wanted):
    found, wanted = (pairs[:, np.lexsort(pairs)] for pairs in (found, wanted))
    return np.array_equal(found, wanted)


def explain(found, wanted):
    """Name programs and elements that are not in both."""
    have, want = (Counter(map(tuple, pairs.T.tolist())) for pairs in (found, wanted))
    return f"stored beside them {dict(have - want)}, not stored {dict(want - have)}"


def hold_same_values(cutter, oracle, step):
    """Hold that all buffers are as the oracle says."""
    tables, captured = cutter.tables, cutter.way == "captured"
    for write in cutter.staged:
        oracle.stage(*write)
    oracle.apply()
    num_rows = step.rows if step.out or captured else max(step.rows, oracle.dirty)
    if captured:  # rows that are dirty are zeroed before the launch
        for table in oracle.inputs:
            table[step.rows : oracle.dirty] = 0
    out = None if step.out is None else [torch.full_like(table, 7) for table in step.out]
    slots = None if step.slots is None else torch.full_like(step.slots, 7)
    oracle.gather(step.mapping, num_rows, out, step.computed)
    oracle.map(step.mapping, step.starts, step.positions, slots)
    pairs = [
        *zip(tables.block_tables, oracle.source, strict=True),
        *zip(tables.input_block_tables, oracle.inputs, strict=True),
        *zip(step.out or [], out or [], strict=True),
        (
            tables.slot_mappings if step.slots is None else step.slots,
            oracle.slots if slots is None else slots,
        ),
        (tables.num_blocks_on_device, torch.tensor(oracle.num_blocks)),
    ]
    assert all(torch.equal(mine, expected) for mine, expected in pairs)
    if step.out is None:
        oracle.dirty = tables.num_dirty_rows
    for mine, expected in zip(
        (*tables.input_block_tables, tables.slot_mappings),
        (*oracle.inputs, oracle.slots),
        strict=True,
    ):
        expected.random_()
        mine.copy_(expected)


class InterpretedKernels:
    """The kernels as Triton's interpreter runs them, with a note of what each program stores."""

    def __init__(self, monkeypatch):
        self.carrying, self.captured = one_launch_carrying_kernel, one_launch_captured_kernel
        self._stores, self._patch = {}, monkeypatch
        builder = interpreter.interpreter_builder
        store = builder.create_masked_store

        def noted(pointers, values, mask, *others):
            at = pointers.data[mask.data].ravel().astype(np.int64)
            if len(at):
                self._stores.setdefault(int(builder.grid_idx[0]), []).append(at)
            return store(pointers, values, mask, *others)

        monkeypatch.setattr(builder, "create_masked_store", noted)

    def record(self):
        self._stores.clear()
        return self._stores
