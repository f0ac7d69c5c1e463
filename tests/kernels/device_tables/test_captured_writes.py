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
THREE = (torch.tensor([2, 2, 2]), torch.tensor([0, 1, 1, 1], dtype=torch.int32), BATCH[2])


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
    tables.num_dirty_rows = 0  # as at the capture, of which a replay zeroes those
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
    tables.prepare_step(*THREE, 3, 4)
    step.publish()
    assert tables.input_block_tables[0][:, 0].tolist() == [5, 0, 0, 0]
    assert tables.num_dirty_rows == 1


@pytest.mark.parametrize("later", ["an eager step", "another publication", "a gather"])
def test_rows_are_zeroed_although_what_was_published_is_not_replayed(later, tables, step):
    tables.append_block_ids(2, [[5]], True)
    tables.prepare_step(*THREE, 3, 4)
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


# Between a publication and its replay


def fill_three_rows(tables):
    """Have a batch of three in the input table, of which each row has a block."""
    tables.append_block_ids(2, [[5]], True)
    tables.apply_staged_writes()
    tables.gather_block_tables(THREE[0], 3)


def test_what_is_staged_after_a_publication_is_left_to_the_next(tables, step):
    append(tables, 7)
    step.publish()
    append(tables, 8)
    replay(tables)
    assert row(tables) == [7, 0, 0]
    assert tables.num_blocks_on_device[0, 1] == 1
    step.publish()
    replay(tables)
    assert row(tables) == [7, 8, 0]


def test_a_second_replay_changes_nothing(tables, step):
    append(tables, 7)
    step.publish()
    replay(tables)
    append(tables, 8, overwrite=True)
    replay(tables)
    assert row(tables) == [7, 0, 0]
    assert tables.slot_mappings[0, 0] == 16 * 7 + 3
    tables.apply_staged_writes()
    assert row(tables) == [8, 0, 0]


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("later", ["gather", "publication", "dummies", "whole step"])
def test_rows_that_a_replay_filled_after_a_gather_are_zeroed(later, writes, tables):
    step = tables.capture_step(*THREE, 3, 4)
    smaller = tables.capture_step(*BATCH, 1, 4)
    fill_three_rows(tables)
    if writes:
        append(tables, 7)
    step.publish()
    tables.gather_block_tables(torch.tensor([2]), 1)
    assert tables.num_dirty_rows == 1
    replay(tables, THREE, 3)
    assert tables.input_block_tables[0][:, 0].tolist() == [5, 5, 5, 0]
    if later == "gather":
        tables.gather_block_tables(torch.tensor([2]), 1)
    elif later == "publication":
        smaller.publish()
    elif later == "dummies":
        tables.get_dummy_block_tables(1)
    else:
        tables.prepare_step(*BATCH, 1, 4)
    assert tables.input_block_tables[0][1:, 0].tolist() == [0, 0, 0]
    tables.input_block_tables[0][2] = 9  # a caller's from now on
    tables.gather_block_tables(torch.tensor([2]), 1)
    assert tables.input_block_tables[0][2, 0] == 9


def test_publications_without_a_kernels_number_wrap():
    """Numbers of publications begin again; each one differs from that before it."""
    tables = classes(["fused"])["fused"](LAYOUT, "cpu")
    step = tables.capture_step(*BATCH, 1, 4)
    view = tables._captured_writes._buffer.view
    view[1] = view[2] = 2**31 - 4
    wanted = []
    for block_id in range(1, 7):
        append(tables, block_id)
        wanted.append(block_id)
        step.publish()
        if block_id % 2:  # else it is never replayed
            replay(tables)
    assert view[1] == 3
    tables.apply_staged_writes()
    assert tables.block_tables[0][1].tolist() == [*wanted, 0, 0]


# Any order

MANY = TableLayout(
    (4, 3), (5, 7), max_num_reqs=5, max_num_batched_tokens=12, sliding_window_reach=(6, 0)
)
TOKENS = 8  # of captured steps


class Captured:
    """A captured step and its inputs."""

    def __init__(self, tables, num_rows, computed):
        self.num_rows, self.computed = num_rows, computed
        self.batch = (
            torch.full((num_rows,), -1),
            torch.zeros(num_rows + 1, dtype=torch.int32),
            torch.zeros(TOKENS, dtype=torch.int64),
        )
        self.step = tables.capture_step(*self.batch, num_rows, TOKENS, num_computed_tokens=computed)


class Random:
    """Random calls on tables and on the reference.

    A replay comes after a publication, though not at once, and after no call that applied other
    writes. It may come again, unless the rows that it fills have been gathered anew. Captured
    inputs are drawn anew in place.

    Attributes:
        later: what was staged since the last publication. The reference is told of it when it is
            published or applied, so that a replay of its own applies what was published.
        published: the captured step that may be replayed; `None`: none may.
        ended: whether its replay, or an apply in its place, has been.
    """

    def __init__(self, variant, seed):
        self.rng = random.Random(seed)
        self.tables = variant(MANY, "cpu")
        self.reference = load_reference()(MANY, "cpu")
        for row in range(MANY.max_num_reqs):
            for each in (self.tables, self.reference):
                each.append_block_ids(row, [[10 + row], [20 + row]], True)
                each.apply_staged_writes()
        self.computed = torch.zeros(MANY.max_num_reqs, dtype=torch.int32)
        self.captured = [
            Captured(self.tables, 3, self.computed),
            Captured(self.tables, 2, None),
            Captured(self.tables, 4, self.computed),
        ]
        self.later, self.published, self.ended = [], None, False
        self.tables.get_dummy_block_tables(0)
        self.saved = self.tables.snapshot(), self.reference.snapshot()

    def append(self):
        row, overwrite = self.rng.randrange(MANY.max_num_reqs), self.rng.random() < 0.3
        ids = []
        for group, width in enumerate(MANY.widths):
            room = width - (0 if overwrite else int(self.tables.num_blocks[group, row]))
            count = min(room, self.rng.choice((0, 1, 1, 3)))
            ids.append([self.rng.randrange(1, 1000) for _ in range(count)])
        self.tables.append_block_ids(row, ids, overwrite)
        self.later.append((row, ids, overwrite))

    def tell(self):
        """Tell the reference what was staged since the last publication."""
        for write in self.later:
            self.reference.append_block_ids(*write)
        self.later.clear()

    def draw(self, num_reqs):
        """Rows, starts and positions of so many requests, some of them dummies."""
        rows = self.rng.sample(range(-1, MANY.max_num_reqs), num_reqs)
        starts = [0]
        for _ in rows:
            starts.append(min(starts[-1] + self.rng.randrange(3), TOKENS))
        positions = [self.rng.randrange(24) for _ in range(TOKENS)]
        starts = torch.tensor(starts, dtype=torch.int32)
        return torch.tensor(rows, dtype=torch.int64), starts, torch.tensor(positions)

    def publish(self):
        """Without a replay, so that any other call may follow."""
        captured = self.rng.choice(self.captured)
        fits = self.tables._captured_writes.has_room(self.tables._staged)
        captured.step.publish()
        self.reference.apply_staged_writes()  # what was published before
        self.tell()
        if not fits:
            self.reference.apply_staged_writes()
        for table in self.reference.input_block_tables:
            table[captured.num_rows :] = 0
        self.reference.num_dirty_rows = captured.num_rows
        self.published, self.ended = captured, False

    def replay(self):
        captured = self.published
        if captured is None:
            self.publish()
            captured = self.published
        for tensor, values in zip(captured.batch, self.draw(captured.num_rows), strict=True):
            tensor.copy_(values)
        self.computed.copy_(torch.tensor([self.rng.randrange(24) for _ in self.computed]))
        rows, computed = captured.num_rows, captured.computed
        replay(self.tables, captured.batch, rows, TOKENS, computed)
        # Rows that are dirty behind those of the step are left as they are.
        dirty, self.reference.num_dirty_rows = self.reference.num_dirty_rows, 0
        self.reference.prepare_step(*captured.batch, rows, TOKENS, num_computed_tokens=computed)
        self.reference.num_dirty_rows = max(dirty, rows)
        self.ended = True

    def note_gather(self):
        if self.ended:
            self.published = None

    def both(self, name, *arguments, **options):
        for each in (self.tables, self.reference):
            getattr(each, name)(*arguments, **options)

    def gather(self):
        self.note_gather()
        num_reqs = self.rng.choice((0, 1, 2, MANY.max_num_reqs))
        batch = self.draw(num_reqs)
        padded = self.rng.randint(num_reqs, MANY.max_num_reqs)
        computed = self.rng.choice((None, self.computed))
        kind = self.rng.choice(("rows", "slots", "both"))
        if kind == "rows":
            self.both("gather_block_tables", batch[0], padded, num_computed_tokens=computed)
        elif kind == "slots":
            self.both("compute_slot_mappings", *batch, TOKENS)
        else:
            self.both("gather_and_compute_slot_mappings", *batch, padded, TOKENS)

    def dummies(self):
        self.note_gather()
        self.both("get_dummy_block_tables", self.rng.randint(0, MANY.max_num_reqs))
        self.both("get_dummy_slot_mappings", TOKENS)

    def prepare(self):
        num_reqs = self.rng.choice((0, 1, 2, MANY.max_num_reqs))
        batch = self.draw(num_reqs)
        self.reference.apply_staged_writes()
        self.tell()
        self.both("prepare_step", *batch, num_reqs, TOKENS)
        self.published = None

    def apply(self):
        if self.later:
            self.published = None
        self.reference.apply_staged_writes()
        self.tell()
        self.both("apply_staged_writes")
        self.ended = True

    def restore(self):
        for each, state in zip((self.tables, self.reference), self.saved, strict=True):
            each.restore(state)
        self.later.clear()
        self.published = None

    def replace(self):
        tables = self.tables
        tables.block_tables[:] = [table.clone() for table in tables.block_tables]
        tables.input_block_tables[:] = [table.clone() for table in tables.input_block_tables]
        tables.slot_mappings = tables.slot_mappings.clone()
        tables.init_block_table_layout_tensors()

    def run(self, num_calls):
        """Raises `AssertionError` where tables and reference differ after a call."""
        calls = [
            *[self.append] * 5,
            *[self.replay] * 4,
            *[self.publish] * 4,
            *[self.prepare] * 2,
            *[self.gather] * 3,
            *(self.apply, self.dummies, self.replace),
        ]
        done = []
        for number in range(num_calls):
            call = self.rng.choice([*calls, self.restore] if number % 7 == 0 else calls)
            call()
            done.append(call.__name__)
            self.compare(f"call {number} of {', '.join(done)}")

    def compare(self, where):
        for name in ("block_tables", "input_block_tables"):
            both = zip(getattr(self.tables, name), getattr(self.reference, name), strict=True)
            for group, (found, wanted) in enumerate(both):
                assert torch.equal(found.long(), wanted), (where, name, group)
        assert torch.equal(self.tables.slot_mappings, self.reference.slot_mappings), where
        counts = torch.from_numpy(self.reference._applied_num_blocks)
        assert torch.equal(self.tables.num_blocks_on_device.long(), counts), where


SEEDS, CALLS = range(4), 40


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
