"""Single operations on small tables, with results worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.variants import SHIPPED, classes

from bt_kernels.layout import PAD_SLOT_ID, TableLayout

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


# Options


@pytest.fixture(params=NAMES)
def build(request, device):
    """Tables of a layout, from its fields; of groups of 4 and 2 tokens a block by default."""
    return lambda **options: classes([request.param])[request.param](
        replace(LAYOUT, **options), device
    )


def starts(*tokens):
    return torch.tensor(tokens, dtype=torch.int32)


def test_a_dummy_request_owns_nothing(tables):
    for row in range(4):
        tables.append_block_ids(row, [[row + 1], [row + 1]], overwrite=True)
    tables.apply_staged_writes()
    tables.input_block_tables[0].fill_(77)
    views, slots = tables.prepare_step(
        mapping(-1, 2, -1), starts(0, 1, 3, 4), torch.tensor([0, 0, 1, 3]), 3, 4
    )
    assert views[0].tolist() == [[0, 0, 0], [3, 77, 77], [0, 0, 0]]
    assert slots.tolist() == [[-1, 12, 13, -1], [-1, 6, 7, -1]]


def test_a_disabled_group_has_no_slots_but_is_gathered(build):
    tables = build(widths=(3, 1), slot_mapping_enabled=(True, False))
    tables.append_block_ids(1, [[5], [6]], overwrite=True)
    views, slots = tables.prepare_step(mapping(1), starts(0, 2), torch.tensor([1, 500_000]), 1, 3)
    assert [view.tolist() for view in views] == [[[5, 0, 0]], [[6]]]
    assert slots.tolist() == [[21, -1, -1], [-1, -1, -1]]


@pytest.mark.parametrize(
    ("computed", "wanted"),
    [
        (0, [1, 2, 77]),
        (8, [1, 2, 77]),
        (9, [0, 2, 77]),  # token 4 is the first that is still read
        (13, [0, 0, 77]),
        (2**31 - 1, [0, 0, 77]),
    ],
)
def test_columns_before_the_window_are_zero(computed, wanted, build):
    tables = build(sliding_window_reach=(5, 0))
    tables.append_block_ids(3, [[1, 2], [3]], overwrite=True)
    tables.apply_staged_writes()
    for table in tables.input_block_tables:
        table.fill_(77)
    by_row = torch.tensor([99, 99, 99, computed], dtype=torch.int32)
    views = tables.gather_block_tables(mapping(3), 1, num_computed_tokens=by_row)
    assert views[0].tolist() == [wanted]
    assert views[1].tolist() == [[3, 77, 77, 77, 77]]
    assert tables.gather_block_tables(mapping(3), 1)[0].tolist() == [[1, 2, 77]]


@pytest.mark.parametrize(
    ("rank", "interleave", "wanted"),
    [
        (0, 1, [28, -1, 29, -1, 30, -1, 31, -1, 36, -1]),
        (1, 1, [-1, 28, -1, 29, -1, 30, -1, 31, -1, 36]),
        (0, 2, [28, 29, -1, -1, 30, 31, -1, -1, 36, 37]),
        (1, 2, [-1, -1, 28, 29, -1, -1, 30, 31, -1, -1]),
        (1, 4, [-1, -1, -1, -1, 28, 29, 30, 31, -1, -1]),
    ],
)
def test_ranks_share_the_tokens_of_a_block(rank, interleave, wanted, build):
    tables = build(
        cp_size=2,
        cp_rank=rank,
        cp_interleave=interleave,
        dcp_sharded=(True, False),
        max_num_batched_tokens=10,
    )
    tables.append_block_ids(0, [[7, 9], [1, 2, 3, 4, 5]], overwrite=True)
    _, slots = tables.prepare_step(mapping(0), starts(0, 10), torch.arange(10), 1, 10)
    assert slots.tolist() == [wanted, list(range(2, 12))]


def test_ranks_together_have_every_slot_once(build):
    found = []
    for rank in range(3):
        tables = build(block_sizes=(4, 6), cp_size=3, cp_rank=rank, cp_interleave=2)
        tables.append_block_ids(0, [[0], [0]], overwrite=True)
        _, slots = tables.prepare_step(mapping(0), starts(0, 8), torch.arange(8) + 2, 1, 8)
        found.append(slots)
    assert (torch.stack(found) >= 0).sum(dim=0).eq(1).all()


def test_context_parallelism_turns_the_window_off(build):
    tables = build(cp_size=2, sliding_window_reach=(1, 1))
    tables.append_block_ids(0, [[1, 2], [3]], overwrite=True)
    tables.apply_staged_writes()
    computed = torch.full((4,), 100, dtype=torch.int32)
    views = tables.gather_block_tables(mapping(0), 1, num_computed_tokens=computed)
    assert views[0].tolist() == [[1, 2, 0]]


@pytest.mark.parametrize("addressed", [True, False])
def test_outputs_of_the_caller_in_place_of_the_own(addressed, tables):
    for row in range(4):
        tables.append_block_ids(row, [[row + 1], [row + 1]], overwrite=True)
    tables.apply_staged_writes()
    tables.gather_block_tables(mapping(3, 2, 1), 3)
    before = [table.clone() for table in tables.input_block_tables]
    out = [torch.full((3, width), 77, dtype=torch.int32) for width in LAYOUT.widths]
    ptrs = torch.tensor([table.data_ptr() for table in out]) if addressed else None
    slots_out = torch.full((2, 6), 77)
    views, slots = tables.gather_and_compute_slot_mappings(
        mapping(0), starts(0, 1), torch.tensor([1]), 2, 3, out=out, out_ptrs=ptrs,
        slots_out=slots_out,
    )  # fmt: skip
    # Rows and slots that are not read: rows are left alone, slots are padded to the end.
    assert out[0].tolist() == [[1, 77, 77], [0, 0, 0], [77, 77, 77]]
    assert slots_out.tolist() == [[5, -1, -1, -1, -1, -1], [3, -1, -1, -1, -1, -1]]
    assert (views[0].data_ptr(), slots.data_ptr()) == (out[0].data_ptr(), slots_out.data_ptr())
    assert (tuple(views[0].shape), tuple(slots.shape)) == ((2, 3), (2, 3))
    assert all(map(torch.equal, tables.input_block_tables, before))
    assert tables.slot_mappings.eq(PAD_SLOT_ID).all()
    tables.gather_block_tables(mapping(0), 1)
    assert tables.input_block_tables[0].tolist() == [[1, 0, 0], [0] * 3, [0] * 3, [0] * 3]


def test_redirected_ids_are_null_and_count(tables):
    tables.redirect_writes_to_null_block = True
    tables.append_block_ids(0, [[5, 6], [7]], overwrite=True)
    tables.redirect_writes_to_null_block = False
    tables.append_block_ids(0, [[8], []], overwrite=False)
    tables.apply_staged_writes()
    assert tables.num_blocks[:, 0].tolist() == [3, 1]
    assert tables.block_tables[0][0].tolist() == [0, 0, 8]


def test_dummy_outputs_are_empty_where_they_were_filled(tables):
    for row in range(4):
        tables.append_block_ids(row, [[row + 1], [row + 1]], overwrite=True)
    tables.prepare_step(mapping(3, 2, 1), starts(0, 1, 2, 3), torch.tensor([0, 1, 2]), 3, 3)
    views = tables.get_dummy_block_tables(1)
    slots = tables.get_dummy_slot_mappings(5)
    assert (tuple(views[0].shape), tuple(slots.shape)) == ((1, 3), (2, 5))
    assert views[0].data_ptr() == tables.input_block_tables[0].data_ptr()
    assert all(table.eq(0).all() for table in tables.input_block_tables)
    assert tables.slot_mappings.eq(PAD_SLOT_ID).all()
    # What a caller may have filled, the next batch zeroes.
    tables.get_dummy_block_tables(3)
    tables.input_block_tables[0][:3] = 77
    tables.gather_block_tables(mapping(), 0)
    assert tables.input_block_tables[0].eq(0).all()


def test_slots_pass_the_limit_of_int32(build):
    tables = build(block_sizes=(262_144, 2))
    tables.append_block_ids(0, [[8_192], [2**31 - 1]], overwrite=True)
    _, slots = tables.prepare_step(mapping(0), starts(0, 1), torch.tensor([1]), 1, 1)
    assert slots.tolist() == [[2**31 + 1], [2**32 - 1]]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_mapping_of_either_dtype(dtype, tables):
    for row in range(4):
        tables.append_block_ids(row, [[row + 1], [row + 1]], overwrite=True)
    views, slots = tables.prepare_step(
        mapping(2, 3, 1).to(dtype), starts(0, 1, 2, 3), torch.tensor([0, 0, 0]), 3, 3
    )
    assert views[0][:, 0].tolist() == [3, 4, 2]
    assert slots[0].tolist() == [12, 16, 8]
