"""Writes published for replays, in whatever order replays and other calls come.

A captured step is called eagerly here, which is what a replay amounts to.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from support.mutants import UNREPLAYED, write_mutant
from support.variants import SHIPPED, classes

from bt_bench.variants.catalogue import load_reference
from bt_kernels.layout import TableLayout

LAYOUT = TableLayout((16,), (8,), max_num_reqs=4, max_num_batched_tokens=16)
BATCH = (torch.tensor([1]), torch.tensor([0, 1], dtype=torch.int32), torch.tensor([3]))


# That which shares its code with the others, and those with kernels of their own.
@pytest.fixture(params=["fused", "one_launch", "one_launch_graph"])
def tables(request):
    return classes([request.param])[request.param](LAYOUT, "cpu")


@pytest.fixture
def step(tables):
    return tables.capture_step(*BATCH, 1, 4)


def replay(tables, batch=BATCH, num_rows=1, num_tokens=4, computed=None):
    """What a replay of a captured step runs, of which the host code sees nothing."""
    dirty = tables.num_dirty_rows
    is_capturing = tables.place.is_capturing
    tables.place.is_capturing = lambda: True
    tables._launch_captured(*batch, num_rows, num_tokens, computed)
    tables.place.is_capturing = is_capturing
    tables.num_dirty_rows = dirty


def row(tables):
    return tables.block_tables[0][1, :3].tolist()


def append(tables, *ids, overwrite=False):
    tables.append_block_ids(1, [list(ids)], overwrite)


def test_a_replay_applies_what_was_published(tables, step):
    append(tables, 7, 8)
    step.publish()
    assert row(tables) == [0, 0, 0]
    replay(tables)
    assert row(tables) == [7, 8, 0]
    assert tables.num_blocks_on_device[0, 1] == 2


def test_what_was_never_replayed_is_applied_before_what_follows(tables, step):
    append(tables, 10, 11)
    step.publish()
    append(tables, 20, overwrite=True)
    tables.apply_staged_writes()
    step.publish()
    replay(tables)
    assert row(tables) == [20, 11, 0]
    assert tables.num_blocks_on_device[0, 1] == 1


def test_an_eager_step_may_take_the_place_of_a_replay(tables, step):
    append(tables, 10, 11)
    step.publish()
    (gathered,), _ = tables.prepare_step(*BATCH, 1, 4)
    assert gathered[0, :3].tolist() == [10, 11, 0]


def test_restore_forgets_what_was_published(tables, step):
    state = tables.snapshot()
    append(tables, 77)
    step.publish()
    tables.restore(state)
    replay(tables)
    step.publish()
    replay(tables)
    assert row(tables) == [0, 0, 0]
    assert tables.num_blocks_on_device[0, 1] == 0


def test_publishing_zeroes_rows_that_a_larger_batch_left(tables, step):
    tables.append_block_ids(2, [[5]], True)
    rows = torch.tensor([2, 2, 2])
    starts = torch.tensor([0, 1, 1, 1], dtype=torch.int32)
    tables.prepare_step(rows, starts, BATCH[2], 3, 4)
    step.publish()
    assert tables.input_block_tables[0][:, 0].tolist() == [5, 0, 0, 0]
    assert tables.num_dirty_rows == 1


@pytest.mark.parametrize("later", ["an eager step", "another publication", "a gather"])
def test_rows_are_zeroed_although_what_was_published_is_not_replayed(later, tables, step):
    tables.append_block_ids(2, [[5]], True)
    starts = torch.tensor([0, 1, 1, 1], dtype=torch.int32)
    tables.prepare_step(torch.tensor([2, 2, 2]), starts, BATCH[2], 3, 4)
    step.publish()
    if later == "another publication":
        step.publish()
        replay(tables)
    elif later == "a gather":
        tables.gather_block_tables(BATCH[0], 1)
    else:
        tables.prepare_step(*BATCH, 1, 4)
    assert tables.input_block_tables[0][1:].tolist() == [[0] * 8] * 3


def test_there_are_as_many_steps_as_are_promised(tables, step):
    """Numbers of steps are as large as they get without being refused."""
    for owner in (tables, tables._captured_writes):
        writes = getattr(owner, "_writes", None)
        if writes is not None:
            writes.step = 2**31 - 4
    for number in (1, 2):
        append(tables, number, number, overwrite=True)
        step.publish()
        replay(tables)
        assert tables.slot_mappings[0, 0] == 16 * number + 3
        append(tables, 8 + number, 8 + number, overwrite=True)
        tables.prepare_step(*BATCH, 1, 4)
        assert tables.slot_mappings[0, 0] == 16 * (8 + number) + 3


# Any order

MANY = TableLayout(
    (4, 3), (5, 7), max_num_reqs=5, max_num_batched_tokens=12, sliding_window_reach=(6, 0)
)
ROWS, TOKENS = 3, 8  # of the captured step


class Random:
    """Random calls on tables and on the reference, which know no order that must be kept.

    Captured inputs are drawn anew in place.
    """

    def __init__(self, variant, seed):
        self.rng = random.Random(seed)
        self.tables = variant(MANY, "cpu")
        self.reference = load_reference()(MANY, "cpu")
        for row in range(MANY.max_num_reqs):
            for each in (self.tables, self.reference):
                each.append_block_ids(row, [[10 + row], [20 + row]], True)
                each.apply_staged_writes()
        self.batch = (
            torch.full((ROWS,), -1),
            torch.zeros(ROWS + 1, dtype=torch.int32),
            torch.zeros(TOKENS, dtype=torch.int64),
        )
        self.computed = torch.zeros(MANY.max_num_reqs, dtype=torch.int32)
        self.step = self.tables.capture_step(
            *self.batch, ROWS, TOKENS, num_computed_tokens=self.computed
        )
        self.saved = self.tables.snapshot(), self.reference.snapshot()

    def append(self):
        row, overwrite = self.rng.randrange(MANY.max_num_reqs), self.rng.random() < 0.3
        ids = []
        for group, width in enumerate(MANY.widths):
            room = width - (0 if overwrite else int(self.tables.num_blocks[group, row]))
            count = min(room, self.rng.choice((0, 1, 1, 3)))
            ids.append([self.rng.randrange(1, 1000) for _ in range(count)])
        for each in (self.tables, self.reference):
            each.append_block_ids(row, ids, overwrite)

    def draw(self, num_reqs):
        """Rows, starts and positions of so many requests, some of them dummies."""
        rows = self.rng.sample(range(-1, MANY.max_num_reqs), num_reqs)
        starts = [0]
        for _ in rows:
            starts.append(starts[-1] + self.rng.randrange(3))
        positions = [self.rng.randrange(24) for _ in range(TOKENS)]
        starts = torch.tensor(starts, dtype=torch.int32)
        return torch.tensor(rows, dtype=torch.int64), starts, torch.tensor(positions)

    def publish(self):
        """Without a replay, so that any other call may follow."""
        self.step.publish()
        for table in self.reference.input_block_tables:
            table[ROWS:] = 0

    def replay(self):
        for tensor, values in zip(self.batch, self.draw(ROWS), strict=True):
            tensor.copy_(values)
        self.computed.copy_(torch.tensor([self.rng.randrange(24) for _ in self.computed]))
        self.step.publish()
        replay(self.tables, self.batch, ROWS, TOKENS, self.computed)
        self.reference.prepare_step(*self.batch, ROWS, TOKENS, num_computed_tokens=self.computed)

    def prepare(self):
        num_reqs = self.rng.choice((0, 1, 2, MANY.max_num_reqs))
        batch = self.draw(num_reqs)
        for each in (self.tables, self.reference):
            each.prepare_step(*batch, num_reqs, TOKENS)

    def apply(self):
        for each in (self.tables, self.reference):
            each.apply_staged_writes()

    def restore(self):
        for each, state in zip((self.tables, self.reference), self.saved, strict=True):
            each.restore(state)

    def run(self, num_calls):
        """Raises `AssertionError` where tables and reference differ after a whole step."""
        calls = [self.append] * 4 + [self.replay] * 3 + [self.publish] * 3 + [self.prepare] * 3
        calls.append(self.apply)
        for number in range(num_calls):
            call = self.rng.choice([*calls, self.restore] if number % 7 == 0 else calls)
            call()
            if call in (self.replay, self.prepare):
                self.compare(f"call {number}, {call.__name__}")

    def compare(self, where):
        for name in ("block_tables", "input_block_tables"):
            both = zip(getattr(self.tables, name), getattr(self.reference, name), strict=True)
            for group, (found, wanted) in enumerate(both):
                assert torch.equal(found.long(), wanted), (where, name, group)
        assert torch.equal(self.tables.slot_mappings, self.reference.slot_mappings), where


SEEDS, CALLS = range(4), 20


# A seed takes a second or two under the interpreter.
@pytest.mark.parametrize(
    "seeds", [SEEDS[:1], pytest.param(SEEDS[1:], marks=pytest.mark.slow)], ids=["first", "others"]
)
@pytest.mark.parametrize("name", ["fused", "one_launch", "one_launch_graph"])
def test_publications_replays_and_other_calls_in_any_order(name, seeds):
    variant = classes([name])[name]
    for seed in seeds:
        Random(variant, seed).run(CALLS)


@pytest.mark.parametrize("name", UNREPLAYED)
def test_a_mutant_is_found(name, tmp_path):
    variant = classes([name], [write_mutant(tmp_path, name)])[name]

    def run():
        for seed in SEEDS:
            Random(variant, seed).run(CALLS)

    with pytest.raises(AssertionError, match="call "):
        run()


# While a graph is captured


@pytest.fixture
def capturing(tables, step, monkeypatch):
    """As if on a GPU, within a capture; what is launched runs all the same."""
    append(tables, 7)
    monkeypatch.setattr(tables.place, "is_capturing", lambda: True)
    return tables


@pytest.mark.parametrize(
    "call",
    [
        lambda tables, _: tables.apply_staged_writes(),
        lambda tables, _: tables.prepare_step(*BATCH, 1, 4),
        lambda _, step: step.publish(),
    ],
    ids=["apply", "prepare_step", "publish"],
)
def test_what_would_freeze_a_host_buffer_is_refused(call, capturing, step):
    with pytest.raises(ValueError, match="while a CUDA graph is captured; use capture_step"):
        call(capturing, step)
    assert capturing._staged


def test_what_is_dirty_stays_so(tables, monkeypatch):
    tables.append_block_ids(2, [[5]], True)
    tables.apply_staged_writes()
    two, one = torch.tensor([2, 2]), torch.tensor([2])
    tables.gather_block_tables(two, 2)
    with monkeypatch.context() as patched:
        patched.setattr(tables.place, "is_capturing", lambda: True)
        tables.gather_block_tables(one, 1)
        tables.get_dummy_block_tables(1)
    assert tables.num_dirty_rows == 2
    tables.get_dummy_block_tables(0)
    assert not tables.input_block_tables[0].any()


def test_tables_are_told_of_rows_that_replays_of_a_gather_filled(tables):
    tables.append_block_ids(2, [[5]], True)
    tables.apply_staged_writes()
    tables.input_block_tables[0][:3, 0] = 5  # a replay
    tables.num_dirty_rows = 3
    tables.gather_block_tables(torch.tensor([2]), 1)
    assert tables.input_block_tables[0][:, 0].tolist() == [5, 0, 0, 0]


# Tables that were replaced


@pytest.mark.parametrize("name", SHIPPED)
def test_replaced_tables_are_found(name):
    tables = classes([name])[name](LAYOUT, "cpu")
    append(tables, 7, 8)
    tables.apply_staged_writes()
    tables.block_tables[0] = tables.block_tables[0].clone()
    tables.slot_mappings = tables.slot_mappings.clone()
    tables.num_blocks_on_device.fill_(123)
    tables.init_block_table_layout_tensors()
    (gathered,), slots = tables.prepare_step(*BATCH, 1, 4)
    assert gathered[0, :3].tolist() == [7, 8, 0]
    assert slots.tolist() == [[115, -1, -1, -1]]
    assert slots.data_ptr() == tables.slot_mappings.data_ptr()


@pytest.mark.parametrize("replayed", [False, True])
def test_what_is_published_counts_once_it_is_applied(replayed, tables, step):
    append(tables, 7)
    tables.apply_staged_writes()
    append(tables, 8)
    step.publish()
    if replayed:
        replay(tables)
    tables.block_tables[0] = tables.block_tables[0].clone()
    tables.block_tables[0][1, 1 + replayed] = 99  # of nobody
    tables.init_block_table_layout_tensors()
    tables.input_block_tables[0].fill_(55)
    (gathered,) = tables.gather_block_tables(BATCH[0], 1)
    assert gathered[0, :3].tolist() == ([7, 8, 55] if replayed else [7, 55, 55])
    replay(tables)
    assert row(tables)[:2] == [7, 8]
    assert tables.num_blocks_on_device[0, 1] == 2


def test_what_is_staged_after_a_publication_does_not_count_either(tables, step):
    append(tables, 7)
    step.publish()
    append(tables, 8)
    tables.append_block_ids(2, [[5]], False)
    tables.init_block_table_layout_tensors()
    assert tables.num_blocks_on_device.tolist() == [[0, 0, 0, 0]]
    tables.apply_staged_writes()
    assert row(tables) == [7, 8, 0]
    assert tables.num_blocks_on_device.tolist() == [[0, 2, 1, 0]]


@pytest.mark.parametrize("name", ["fused", "one_launch", "one_launch_graph"])
def test_a_replay_fills_what_took_the_place_of_tables_since(name):
    """With a window, a launch is told where its slots are."""
    layout = replace(LAYOUT, sliding_window_reach=(5,))
    tables = classes([name])[name](layout, "cpu")
    computed = torch.zeros(layout.max_num_reqs, dtype=torch.int32)
    step = tables.capture_step(*BATCH, 1, 4, num_computed_tokens=computed)
    append(tables, 7)
    step.publish()
    before = [tables.slot_mappings, tables.input_block_tables[0], tables.block_tables[0]]
    kept = [tensor.clone() for tensor in before]
    tables.slot_mappings = torch.zeros_like(tables.slot_mappings)
    tables.input_block_tables = [torch.zeros_like(tables.input_block_tables[0])]
    tables.block_tables = [torch.zeros_like(tables.block_tables[0])]
    tables.init_block_table_layout_tensors()
    replay(tables, computed=computed)
    assert all(map(torch.equal, before, kept))
    assert tables.slot_mappings.tolist() == [[16 * 7 + 3, *[-1] * 15]]
    assert tables.input_block_tables[0][0, 0] == row(tables)[0] == 7


def test_a_replay_makes_its_step_although_its_writes_were_applied_before(tables, step):
    append(tables, 7)
    step.publish()
    tables.apply_staged_writes()
    replay(tables)
    assert tables.input_block_tables[0][0, 0] == 7
    assert tables.slot_mappings[0, 0] == 16 * 7 + 3


def test_tables_are_not_replaced_during_a_capture(capturing):
    before = capturing.block_tables[0]
    capturing.block_tables[0] = before.clone()
    with pytest.raises(ValueError, match="while a CUDA graph is captured; do it before"):
        capturing.init_block_table_layout_tensors()
    assert capturing.descriptors[0, 0] == before.data_ptr()


def test_views_are_of_tables_that_kernels_are_told_of(tables):
    """A refused call leaves the tables that there were, whose rows the kernels fill."""
    used = tables.input_block_tables[0]
    tables.input_block_tables[0] = torch.zeros(4, 7, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"input_block_tables\[0\] has shape \(4, 7\)"):
        tables.init_block_table_layout_tensors()
    (gathered,) = tables.gather_block_tables(BATCH[0], 1)
    assert gathered.data_ptr() == used.data_ptr()


def test_a_snapshot_of_another_layout_is_refused(tables, step):
    append(tables, 7)
    step.publish()
    append(tables, 8)
    other = type(tables)(replace(LAYOUT, widths=(1,)), "cpu").snapshot()
    with pytest.raises(ValueError, match="the snapshot is of another layout"):
        tables.restore(other)
    assert tables.num_blocks[0, 1] == 2
    replay(tables)
    tables.apply_staged_writes()
    assert row(tables) == [7, 8, 0]


def test_too_many_dirty_rows_are_refused_before_anything_is_applied(tables, step):
    append(tables, 7)
    step.publish()
    append(tables, 8)
    tables.num_dirty_rows = 5
    with pytest.raises(ValueError, match="num_dirty_rows is 5; expected 0 to 4"):
        tables.prepare_step(*BATCH, 1, 4)
    assert row(tables) == [0, 0, 0]
    tables.num_dirty_rows = 4
    tables.prepare_step(*BATCH, 1, 4)
    assert row(tables) == [7, 8, 0]


def test_tables_of_another_shape_are_refused(tables):
    tables.block_tables[0] = torch.zeros(2, 3, dtype=torch.int32)
    with pytest.raises(
        ValueError, match=r"block_tables\[0\] has shape \(2, 3\); expected \(4, 8\)"
    ):
        tables.init_block_table_layout_tensors()
