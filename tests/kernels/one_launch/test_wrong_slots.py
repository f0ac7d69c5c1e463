"""Steps whose slots, rows or writes were wrong once, or ended the process."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from support import cuts
from support.quick_triton import QuickKernels
from support.variants import SHIPPED, classes

from bt_bench.suites.block_tables.workloads.conformance.thresholds import BEHIND_A_LONG_ONE
from bt_bench.variants.catalogue import load_reference
from bt_kernels.layout import TableLayout
from bt_kernels.one_launch import carrying, fixed

ONE_LAUNCH = ("one_launch", "one_launch_graph")


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Cut steps of the CPU as on a GPU, with kernels in numpy; Triton's interpreter takes 15 s."""
    kernels = QuickKernels()
    monkeypatch.setattr(carrying, "one_launch_carrying_kernel", kernels.carrying)
    monkeypatch.setattr(fixed, "one_launch_captured_kernel", kernels.captured)
    with cuts.sizes(monkeypatch, cuts.gpu_sizes()):
        yield


def filled(variant, layout, device):
    """Make tables of which all rows are full, each block with an id of its own."""
    tables = variant(layout, device)
    for row in range(layout.max_num_reqs):
        firsts = [1 + 100 * row + 100_000 * group for group in range(layout.num_groups)]
        ids = [list(range(f, f + w)) for f, w in zip(firsts, layout.widths, strict=True)]
        tables.append_block_ids(row, ids, True)
    tables.apply_staged_writes()
    return tables


def batch_of(lengths, device, dtype=torch.int64):
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    positions = torch.cat([torch.arange(length) for length in lengths])
    return (
        torch.arange(len(lengths), dtype=dtype, device=device),
        starts.to(device),
        positions.to(device),
    )


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_captured", [False, True])
@pytest.mark.parametrize("lengths", BEHIND_A_LONG_ONE, ids=["128_1", "120_16", "drafts"])
@pytest.mark.parametrize("name", ONE_LAUNCH)
@pytest.mark.usefixtures("as_on_a_gpu")
def test_slots_behind_a_long_request(name, lengths, is_captured, device):
    """Programs of two requests leave the second one's tokens to spans, which passed over them."""
    check_slots_behind_a_long_request(name, lengths, is_captured, device)


@pytest.mark.gpu
@pytest.mark.parametrize("is_captured", [False, True])
@pytest.mark.parametrize("lengths", BEHIND_A_LONG_ONE, ids=["128_1", "120_16", "drafts"])
@pytest.mark.parametrize("name", ONE_LAUNCH)
def test_slots_behind_a_long_request_on_a_gpu(name, lengths, is_captured, device):
    check_slots_behind_a_long_request(name, lengths, is_captured, device)


def check_slots_behind_a_long_request(name, lengths, is_captured, device):
    num_rows = max(129, len(lengths))
    layout = TableLayout((16,) * 8, (16,) * 8, num_rows, max_num_batched_tokens=1_200)
    tables = filled(classes([name])[name], layout, device)
    batch = batch_of(lengths, device)
    tables.slot_mappings.fill_(-7)
    if is_captured:
        tables.capture_step(*batch, num_rows, 1_200)
    else:
        tables.prepare_step(*batch, num_rows, 1_200)
    for group, table in enumerate(tables.block_tables):
        expected = torch.full((1_200,), -1, dtype=torch.int64)
        for row, (begin, end) in enumerate(pairwise(batch[1].tolist())):
            position = torch.arange(end - begin)
            blocks = table[row].cpu().to(torch.int64)[position // 16]
            expected[begin:end] = blocks * 16 + position % 16
        assert torch.equal(tables.slot_mappings[group].cpu(), expected)


ODD_ROWS = (2**32 + 1, -(2**32) + 1, 2**31, 2**31 + 1, -(2**31), 2**62 + 2, 3, 2**31 - 1)


@pytest.mark.parametrize("is_captured", [False, True])
@pytest.mark.parametrize("name", SHIPPED)
def test_a_row_that_does_not_exist_is_a_dummy_request(name, is_captured, device):
    """Also one whose lower half is a row; what is staged for that row is written all the same."""
    for rows in zip(ODD_ROWS[::2], ODD_ROWS[1::2], strict=True):
        expected = step_with_rows(load_reference(), rows, "cpu")
        found = step_with_rows(classes([name])[name], rows, device, is_captured=is_captured)
        assert all(map(torch.equal, found, expected)), rows


def step_with_rows(variant, rows, device, *, is_captured=False):
    """Make a step of requests in these rows and the last one, with writes to row 1; all buffers."""
    layout = TableLayout((4, 4), (4, 6), max_num_reqs=3, max_num_batched_tokens=16)
    tables = filled(variant, layout, device)
    tables.append_block_ids(1, [list(range(9, 9 + width)) for width in layout.widths], True)
    _, *others = batch_of([2, 2, 2], device)
    make = tables.capture_step if is_captured else tables.prepare_step
    make(torch.tensor([*rows, 2], device=device), *others, 3, 16)
    buffers = *tables.block_tables, *tables.input_block_tables, tables.slot_mappings
    return [buffer.cpu().to(torch.int64) for buffer in buffers]


@pytest.mark.parametrize("name", ONE_LAUNCH)
@pytest.mark.parametrize(
    "later", ["an eager step", "another publication", "an empty publication", "a restored state"]
)
def test_what_was_published_and_never_replayed_needs_no_batch(name, later, device):
    """Headers then have no batch, whose memory programs of spans read; they ended the process."""
    layout = TableLayout((16,), (8,), max_num_reqs=4, max_num_batched_tokens=300)
    tables = classes([name])[name](layout, device)
    batch = batch_of([1], device)
    state = tables.snapshot()
    step = tables.capture_step(*batch, 1, 4)
    tables.append_block_ids(0, [[10, 11]], False)
    step.publish()
    if later == "a restored state":
        tables.restore(state)
        tables._captured_writes.launch_step(tables, False)  # what a replay runs
        expected = []
    elif later == "an empty publication":
        step.publish()
        tables._captured_writes.launch_step(tables, False)
        expected = [10, 11]
    elif later == "another publication":
        tables.append_block_ids(0, [[12]], False)
        step.publish()
        tables._captured_writes.launch_step(tables, False)
        expected = [10, 11, 12]
    else:
        tables.append_block_ids(0, [[12]], False)
        tables.prepare_step(*batch, 1, 4)
        expected = [10, 11, 12]
    assert tables.block_tables[0][0].tolist() == [*expected, *[0] * (8 - len(expected))]


@pytest.mark.parametrize("num_rows", [1, 13])
def test_slots_of_a_caller_for_more_tokens_than_the_layout_has(num_rows, device):
    """Programs of tiles map the first of a request's tokens, and there were no others."""
    layout = TableLayout((64,), (3,), num_rows, max_num_batched_tokens=1)
    tables = filled(classes(["one_launch_graph"])["one_launch_graph"], layout, device)
    slots = torch.full((1, 129), 7, dtype=torch.int64, device=device)
    tables.prepare_step(*batch_of([129], device), 1, 129, slots_out=slots)
    expected = [64 * (1 + position // 64) + position % 64 for position in range(129)]
    assert slots[0].tolist() == expected


@pytest.mark.parametrize("name", ["fused", *ONE_LAUNCH])
def test_a_captured_step_takes_sizes_of_numpy(name, device):
    layout = TableLayout((16,), (8,), max_num_reqs=4, max_num_batched_tokens=16)
    tables = filled(classes([name])[name], layout, device)
    step = tables.capture_step(*batch_of([1], device), np.int32(2), 4)
    step.publish()
    assert [tuple(view.shape) for view in step.block_tables] == [(2, 8)]


@pytest.mark.parametrize("name", ONE_LAUNCH)
def test_what_was_published_is_applied_without_its_step(name, device):
    layout = TableLayout((16,), (8,), max_num_reqs=4, max_num_batched_tokens=300)
    tables = classes([name])[name](layout, device)
    step = tables.capture_step(*batch_of([1], device), 1, 4)
    tables.append_block_ids(0, [[10, 11]], False)
    step.publish()
    for buffer in (*tables.input_block_tables, tables.slot_mappings):
        buffer.fill_(7)
    tables.apply_staged_writes()
    assert tables.block_tables[0][0, :3].tolist() == [10, 11, 0]
    assert all((buffer == 7).all() for buffer in (*tables.input_block_tables, tables.slot_mappings))
