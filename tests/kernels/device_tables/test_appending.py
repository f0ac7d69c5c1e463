"""Appending without a function in Python on the way, where staging is in C."""

from __future__ import annotations

import gc
import weakref

import pytest
from support.variants import classes

from bt_kernels import BlockTables, native
from bt_kernels.layout import TableLayout
from bt_kernels.staging import StagedWrites

LAYOUT = TableLayout((16, 16), (3, 9), max_num_reqs=4, max_num_batched_tokens=8)
FUSED = classes(["fused"])["fused"]

pytestmark = pytest.mark.skipif(
    native.load("staged") is None, reason=f"no helper in C: {native.why_not('staged')}"
)


def test_it_is_the_method_in_c():
    tables = FUSED(LAYOUT, "cpu")
    assert tables.append_block_ids == tables._staged.append_block_ids
    tables.append_block_ids(1, [[5], [6]], overwrite=True)
    assert tables._staged.intervals() == [(0, 1, 0, [5]), (1, 1, 0, [6])]
    with pytest.raises(ValueError, match="row 1 of group 0 would have 4 blocks; its table is 3"):
        tables.append_block_ids(1, [[1] * 3, []], False)
    assert tables.append_many == tables._staged.append_requests
    tables.append_many([2], [[[7], []]], overwrite=[True])
    assert tables._staged.intervals()[1] == (0, 2, 0, [7])
    with pytest.raises(ValueError, match="request 1: row 1 of group 0 would have 4 blocks"):
        tables.append_many([2, 1], [[[], []], [[1] * 3, []]], [False, False])
    engine = BlockTables([16, 16], 4, 8, [3, 9], "cpu")
    assert engine.append_block_ids == engine._variant._staged.append_block_ids
    assert engine.append_many == engine._variant._staged.append_requests


def test_redirecting_reaches_it():
    tables = FUSED(LAYOUT, "cpu")
    assert tables.redirect_writes_to_null_block is False
    for redirects, expected in ((True, 0), (False, 5)):
        tables.redirect_writes_to_null_block = redirects
        assert tables.redirect_writes_to_null_block is redirects
        tables.append_block_ids(1, [[5], []], True)
        tables.append_many([2], [[[5], []]], [True])
        expected_of = [(0, row, 0, [expected]) for row in (1, 2)]
        assert tables._staged.intervals()[:2] == expected_of


class Overridden(FUSED):
    def append_block_ids(self, req_index, new_block_ids, overwrite):
        super().append_block_ids(3, new_block_ids, overwrite)


class OverriddenMany(FUSED):
    def append_many(self, req_indices, new_block_ids, overwrite):
        super().append_many([3] * len(req_indices), new_block_ids, overwrite)


class InPython(FUSED):
    native = False


def test_what_a_variant_overrides_counts():
    tables = Overridden(LAYOUT, "cpu")
    tables.redirect_writes_to_null_block = True
    tables.append_block_ids(1, [[5], []], True)
    assert tables._staged.intervals()[:1] == [(0, 3, 0, [0])]

    assert "append_many" in vars(tables)
    tables = OverriddenMany(LAYOUT, "cpu")
    tables.append_many([1], [[[5], []]], [True])
    assert tables._staged.intervals()[:1] == [(0, 3, 0, [5])]
    assert "append_block_ids" in vars(tables)

    class Engine(BlockTables):
        def append_block_ids(self, *_):
            raise KeyError

    with pytest.raises(KeyError):
        Engine([16, 16], 4, 8, [3, 9], "cpu").append_block_ids(1, [[5], []], True)


def test_what_takes_the_place_of_staged_writes_counts():
    tables = FUSED(LAYOUT, "cpu")
    tables._stage_in(StagedWrites(LAYOUT.widths, tables.num_blocks))
    tables.redirect_writes_to_null_block = True
    tables.append_block_ids(1, [[5], []], True)
    assert tables._staged.intervals()[:1] == [(0, 1, 0, [0])]
    for each in (tables, InPython(LAYOUT, "cpu")):
        assert not {"append_block_ids", "append_many"} & vars(each).keys()


def test_tables_do_not_outlive_their_last_user():
    tables = FUSED(LAYOUT, "cpu")
    known = weakref.ref(tables)
    gc.disable()
    try:
        del tables
        assert known() is None
    finally:
        gc.enable()
