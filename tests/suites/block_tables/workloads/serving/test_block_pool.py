"""The free queue of block ids."""

from __future__ import annotations

from array import array

import pytest

from bt_bench.suites.block_tables.workloads.serving.block_pool import BlockPool


def test_ids_start_after_the_null_block_and_come_in_order():
    pool = BlockPool(4)
    assert pool.take(3) == [1, 2, 3]
    assert pool.take(0) == []
    assert pool.take(1) == [4]


def test_freed_ids_come_last_first_freed_first_and_each_row_from_its_end():
    pool = BlockPool(6)
    pool.take(5)
    pool.give_back(array("i", [1, 2]))
    pool.give_back(array("i", [4, 3]))
    pool.give_back(array("i"))
    assert pool.take(4) == [6, 2, 1, 3]
    assert pool.take(1) == [4]
    assert pool.num_free == 0


def test_counts():
    pool = BlockPool(4)
    pool.give_back(array("i", pool.take(3)))
    pool.take(2)
    assert pool.num_in_use == 2
    assert pool.peak_in_use == 3
    assert pool.num_allocations == 5
    assert pool.num_distinct == 4


def test_taking_more_than_is_free_is_refused_and_changes_nothing():
    pool = BlockPool(2)
    pool.take(1)
    with pytest.raises(ValueError, match="2 blocks were asked for, but only 1 are free"):
        pool.take(2)
    assert pool.num_free == 1
