"""Writes published for replays, in whatever order replays and other calls come.

A captured step is called eagerly here, which is what a replay amounts to.
"""

from __future__ import annotations

import pytest
import torch
from variants import SHIPPED, classes

from bt_kernels import TableLayout

LAYOUT = TableLayout((16,), (8,), max_num_reqs=4, max_num_batched_tokens=16)
BATCH = (torch.tensor([1]), torch.tensor([0, 1], dtype=torch.int32), torch.tensor([3]))


@pytest.fixture
def tables():
    return classes(["fused"])["fused"](LAYOUT, "cpu")


@pytest.fixture
def step(tables):
    return tables.capture_step(*BATCH, 1, 4)


def replay(tables):
    """What a replay of a captured step runs first."""
    tables._captured_writes.launch(tables)


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


# While a graph is captured


@pytest.fixture
def capturing(tables, step, monkeypatch):
    """As if on a GPU, within a capture; what is launched runs all the same."""
    append(tables, 7)
    monkeypatch.setattr(type(tables), "_capturing", lambda _: True)
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
    with pytest.raises(ValueError, match="while a CUDA graph is captured; capture_step is for"):
        call(capturing, step)
    assert capturing._staged


def test_what_is_dirty_stays_so(tables, monkeypatch):
    tables.append_block_ids(2, [[5]], True)
    tables.apply_staged_writes()
    two, one = torch.tensor([2, 2]), torch.tensor([2])
    tables.gather_block_tables(two, 2)
    with monkeypatch.context() as patched:
        patched.setattr(type(tables), "_capturing", lambda _: True)
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


def test_tables_of_another_shape_are_refused(tables):
    tables.block_tables[0] = torch.zeros(2, 3, dtype=torch.int32)
    with pytest.raises(
        ValueError, match=r"block_tables\[0\] has shape \(2, 3\); expected \(4, 8\)"
    ):
        tables.init_block_table_layout_tensors()
