"""Single operations on small tables, with results worked out by hand."""

from __future__ import annotations

import pytest
import torch
from variants import SHIPPED, classes

from bt_kernels import PAD_SLOT_ID, TableLayout

LAYOUT = TableLayout((4, 2), (3, 5), max_num_reqs=4, max_num_batched_tokens=8)
NAMES = ("reference", *SHIPPED)


@pytest.fixture(params=NAMES)
def tables(request, device):
    return classes([request.param])[request.param](LAYOUT, device)


def mapping(*rows):
    return torch.tensor(rows, dtype=torch.int64)


def test_one_step(tables):
    tables.append_block_ids(2, [[7, 9], [1, 2, 3]], overwrite=True)
    views, slots = tables.prepare_step(
        mapping(2), torch.tensor([0, 3], dtype=torch.int32), torch.tensor([5, 6, 7]), 2, 4
    )
    assert [view.tolist() for view in views] == [
        [[7, 9, 0], [0, 0, 0]],
        [[1, 2, 3, 0, 0], [0, 0, 0, 0, 0]],
    ]
    # Group 0: column 1 is block 9 of 4 tokens; group 1: columns 2, 3, 3, of which 3 holds 0.
    assert slots.tolist() == [[37, 38, 39, -1], [7, 0, 1, -1]]
    assert tables.slot_mappings[:, 4:].eq(PAD_SLOT_ID).all()


def test_appends_extend_and_overwrite_starts_again(tables):
    tables.append_block_ids(0, [[1], [2]], overwrite=True)
    tables.append_block_ids(0, [[3], []], overwrite=False)
    tables.apply_staged_writes()
    assert tables.num_blocks[:, 0].tolist() == [2, 1]
    tables.append_block_ids(0, [[8], [8, 8]], overwrite=False)
    tables.append_block_ids(0, [[4], []], overwrite=True)
    tables.apply_staged_writes()
    assert tables.num_blocks[:, 0].tolist() == [1, 0]
    # Column 2 of group 0 was staged (8), then forgotten: it never reached the table.
    assert tables.block_tables[0][0].tolist() == [4, 3, 0]
    assert tables.block_tables[1][0].tolist() == [2, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("row", "ids", "message"),
    [
        (1, [[1, 2, 3, 4], [1]], "row 1 of group 0.* 4 blocks.* 3"),
        (1, [[1], [1] * 6], "row 1 of group 1.* 6 blocks.* 5"),
        (4, [[1], [1]], "req_index is 4"),
        (-1, [[1], [1]], "req_index is -1"),
        (0, [[1]], "1 lists"),
    ],
)
def test_refused_before_anything_is_changed(tables, row, ids, message):
    tables.append_block_ids(1, [[5], [6]], overwrite=True)
    before = tables.num_blocks.copy()
    with pytest.raises(ValueError, match=message):
        tables.append_block_ids(row, ids, overwrite=True)
    assert (tables.num_blocks == before).all()
    tables.apply_staged_writes()
    assert tables.block_tables[0].sum() == 5
    assert tables.block_tables[1].sum() == 6


def test_rows_of_a_larger_batch_are_zeroed(tables):
    for row in range(4):
        tables.append_block_ids(row, [[row + 1], [row + 1]], overwrite=True)
    tables.apply_staged_writes()
    tables.gather_block_tables(mapping(3, 2, 1), 3)
    tables.gather_block_tables(mapping(0), 1)
    assert tables.input_block_tables[0].tolist() == [[1, 0, 0], [0] * 3, [0] * 3, [0] * 3]


def test_gather_sees_what_was_applied(tables):
    tables.append_block_ids(0, [[5], [5]], overwrite=True)
    tables.apply_staged_writes()
    tables.append_block_ids(0, [[6], [6]], overwrite=False)
    (first, _second) = tables.gather_block_tables(mapping(0), 1)
    assert first.tolist() == [[5, 0, 0]]


def test_restore_puts_the_snapshot_back_in_place(tables):
    tables.append_block_ids(0, [[5], [5]], overwrite=True)
    tables.apply_staged_writes()
    address = tables.block_tables[0].data_ptr()
    state = tables.snapshot()
    tables.append_block_ids(0, [[6], [6]], overwrite=True)
    tables.apply_staged_writes()
    tables.append_block_ids(0, [[7], [7]], overwrite=False)
    tables.restore(state)
    tables.apply_staged_writes()
    assert tables.block_tables[0][0].tolist() == [5, 0, 0]
    assert tables.num_blocks[:, 0].tolist() == [1, 1]
    assert tables.block_tables[0].data_ptr() == address


def test_too_few_padded_rows_are_refused(tables):
    with pytest.raises(ValueError, match="num_reqs_padded is 1; expected 2"):
        tables.gather_block_tables(mapping(0, 1), 1)
    with pytest.raises(ValueError, match="num_reqs_padded is 5; expected 2"):
        tables.gather_block_tables(mapping(0, 1), 5)


def test_more_padded_tokens_than_slots_are_refused(tables):
    start, positions = torch.tensor([0, 1], dtype=torch.int32), torch.tensor([0])
    with pytest.raises(ValueError, match="num_tokens_padded is 9"):
        tables.compute_slot_mappings(mapping(0), start, positions, 9)
    with pytest.raises(ValueError, match="num_tokens_padded is 9"):
        tables.prepare_step(mapping(0), start, positions, 1, 9)
