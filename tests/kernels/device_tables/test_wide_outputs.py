"""Batches of more requests than the tables have rows, in buffers of the caller.

vLLM's prefill context parallelism gathers up to two rows per request.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.playing import EngineTables
from support.variants import SHIPPED, assert_equal, classes

from bt_kernels.layout import TableLayout
from bt_kernels.one_launch import PinnedSteps
from bt_kernels.variants.reference import Variant as Reference

LAYOUT = TableLayout(
    (4, 2), (3, 1100), max_num_reqs=4, max_num_batched_tokens=8, sliding_window_reach=(3, 0)
)
# From one row more than the tables have to more than the other shape of programs begins with.
SIZES = (5, 8, 13, 40)
VARIANTS = {**classes(SHIPPED), "BlockTables": EngineTables}


class Both:
    """A variant's tables and the reference's, which get the same calls."""

    def __init__(self, tables, seed):
        self.tables, self.reference = tables, Reference(LAYOUT)
        self.rng = np.random.default_rng(seed)

    def each(self, call):
        return [call(tables) for tables in (self.tables, self.reference)]

    def append(self):
        for row in self.rng.permutation(LAYOUT.max_num_reqs)[:3].tolist():
            ids = [self.rng.integers(1, 99, self.rng.integers(0, 4)).tolist() for _ in range(2)]
            if row == 2:
                ids[1] = list(range(1, 1050))  # a row with programs for its columns
            self.each(lambda tables, row=row, ids=ids: tables.append_block_ids(row, ids, True))

    def batch(self, num_reqs):
        """Arguments of a batch, whose rows come several times, and its sizes."""
        lengths = self.rng.integers(0, 4, num_reqs)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        rows = self.rng.integers(-1, LAYOUT.max_num_reqs, num_reqs)
        positions = self.rng.integers(0, 2200, starts[-1])
        computed = self.rng.integers(0, 12, LAYOUT.max_num_reqs)
        return {
            "idx_mapping": torch.tensor(rows),
            "query_start_loc": torch.tensor(starts, dtype=torch.int32),
            "positions": torch.tensor(positions),
            "num_reqs_padded": num_reqs + 2,
            "num_tokens_padded": int(starts[-1]),
            "num_computed_tokens": torch.tensor(computed, dtype=torch.int32),
        }

    def step(self, method, num_reqs):
        """Make a call on a wide batch; hold that both fill all buffers alike."""
        arguments = self.batch(num_reqs)
        rows, tokens = num_reqs + 3, arguments["num_tokens_padded"] + 5
        found = []
        for tables in (self.tables, self.reference):
            device = tables.device
            out = [
                torch.full((rows, width), -7, dtype=torch.int32, device=device)
                for width in LAYOUT.widths
            ]
            slots = torch.full((2, tokens), -7, device=device)
            given = {
                name: value.to(device) if isinstance(value, torch.Tensor) else value
                for name, value in arguments.items()
            }
            if method == "compute_slot_mappings":
                del given["num_reqs_padded"], given["num_computed_tokens"]
                getattr(tables, method)(**given, out=slots)
            elif method == "gather_block_tables":
                for name in ("query_start_loc", "positions", "num_tokens_padded"):
                    del given[name]
                addresses = [table.data_ptr() for table in out]
                pointers = torch.tensor(addresses, dtype=torch.uint64, device=device)
                views = tables.gather_block_tables(**given, out=out, out_ptrs=pointers)
                assert [len(view) for view in views] == [num_reqs + 2] * 2
            else:
                getattr(tables, method)(**given, out=out, slots_out=slots)
            found.append([*out, slots])
        for buffer, wanted in zip(*found, strict=True):
            assert torch.equal(buffer.cpu(), wanted)
        assert_equal(self.tables, self.reference)


METHODS = (
    "gather_block_tables",
    "compute_slot_mappings",
    "gather_and_compute_slot_mappings",
    "prepare_step",
)


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("num_reqs", SIZES)
@pytest.mark.parametrize("name", VARIANTS)
def test_wide_batches_fill_the_callers_buffers(name, num_reqs, device):
    both = Both(VARIANTS[name](LAYOUT, device), seed=num_reqs)
    for method in (*METHODS, *METHODS):
        both.append()
        if method != "prepare_step":
            both.each(lambda tables: tables.apply_staged_writes())
        both.step(method, num_reqs)


@pytest.mark.gpu
@pytest.mark.parametrize("num_reqs", [*SIZES, 600, 1_500])
@pytest.mark.parametrize("name", VARIANTS)
def test_wide_batches_on_a_gpu(name, num_reqs, device):
    both = Both(VARIANTS[name](LAYOUT, device), seed=num_reqs)
    for method in (*METHODS, *METHODS):
        both.append()
        if method != "prepare_step":
            both.each(lambda tables: tables.apply_staged_writes())
        both.step(method, num_reqs)


@pytest.mark.parametrize(
    ("num_reqs", "validate"), [(5, False), (5, True), (8, False), (13, True), (40, False)]
)
def test_wide_steps_from_pinned_memory(num_reqs, validate, device, monkeypatch):
    tables = classes(["one_launch"])["one_launch"](LAYOUT, device, validate=validate)
    monkeypatch.setattr(tables._carrying, "run", lambda *_: False)
    both = Both(tables, seed=num_reqs)
    for _ in range(2):
        both.append()
        both.step("prepare_step", num_reqs)
    assert isinstance(tables._pinned, PinnedSteps)


def test_a_wide_gather_leaves_the_own_tables_and_their_dirty_rows(device):
    both = Both(VARIANTS["BlockTables"](LAYOUT, device), seed=1)
    both.append()
    both.each(lambda tables: tables.apply_staged_writes())
    both.each(lambda tables: tables.gather_block_tables(torch.tensor([2, 1, 0]), 3))
    both.step("gather_block_tables", 9)
    both.each(lambda tables: tables.gather_block_tables(torch.tensor([1]), 1))
    assert_equal(both.tables, both.reference)


def test_shapes_that_are_not_compiled_ahead_are_not_used(device):
    """A layout of few rows has only programs of one request each; see `CarryingLaunch.binaries`."""
    layout = TableLayout((4,), (3,), max_num_reqs=4, max_num_batched_tokens=8)
    tables = classes(["one_launch"])["one_launch"](layout, device)
    shapes = {binary.shape for binary in tables._carrying.binaries(aligned=False)}
    used = []
    launch = tables._carrying._launch
    tables._carrying._launch = lambda binary, *rest: (
        used.append(binary.shape),
        launch(binary, *rest),
    )
    out = [torch.zeros(40, 3, dtype=torch.int32)]
    starts, positions = torch.zeros(41, dtype=torch.int32), torch.zeros(0, dtype=torch.int64)
    tables.prepare_step(torch.zeros(40, dtype=torch.int64), starts, positions, 40, 0, out=out)
    assert set(used) <= shapes
