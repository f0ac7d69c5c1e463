"""Sliding windows that move over rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bt_bench.suites.block_tables.workloads.serving.windows import SlidingWindows


def rows(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_columns_are_passed_once_in_every_group_with_a_window():
    windows = SlidingWindows((4, 4, 4, 10), (6, 0, 6, 1), num_rows=3)
    assert list(windows.move(rows(2, 0), rows(9, 22))) == [
        *((0, group, slice(0, 4)) for group in (0, 2)),
        (0, 3, slice(0, 2)),
    ]
    assert list(windows.move(rows(0, 2), rows(25, 10))) == [
        *((2, group, slice(0, 1)) for group in (0, 2)),
    ]
    assert windows.forget(0, 4) == [4, 0, 4, 2]
    assert windows.forget(0, 4) == [0, 0, 0, 0]
    assert windows.forget(2, 4) == [1, 0, 1, 0]


def test_without_a_window_there_is_nothing_to_do():
    windows = SlidingWindows((4, 8), (0, 0), num_rows=2)
    assert not windows
    assert list(windows.move(rows(0, 1), rows(100, 200))) == []
    assert windows.forget(1, 2) == [0, 0]
    assert SlidingWindows((4,), (1,), num_rows=1)


def test_computed_tokens_stay_where_they_were_put():
    windows = SlidingWindows((4,), (1,), num_rows=4)
    first = windows.num_computed_tokens(rows(3, 1), rows(30, 10))
    assert first.tolist() == [0, 10, 0, 30]
    assert windows.num_computed_tokens(rows(1), rows(11)).tolist() == [0, 11, 0, 30]
    assert first.tolist() == [0, 10, 0, 30]
    assert first.dtype == np.int32


MOVES = 12


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7)), max_size=MOVES),
)
def test_a_passed_column_has_no_token_in_the_window(size, reach, moves):
    windows = SlidingWindows((size,), (reach,), num_rows=3)
    computed, passed = [0, 0, 0], [[], [], []]
    for row, more in moves:
        computed[row] += more
        for moved, group, columns in windows.move(rows(row), rows(computed[row])):
            assert (moved, group) == (row, 0)
            passed[row] += range(columns.start, columns.stop)
        outside = [
            column for column in range(7 * MOVES) if (column + 1) * size <= computed[row] - reach
        ]
        assert passed[row] == outside
