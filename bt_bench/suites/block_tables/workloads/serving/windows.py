"""Sliding windows: blocks that a scheduler can give back, as no token will read them again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bt_bench.suites.block_tables.workloads.steps import Int32Array, Int64Array


class SlidingWindows:
    """The places of the sliding windows of all rows.

    A column whose tokens all lie before the window of a row is *passed*. It stays in the row, and
    counts as one of its blocks.

    Args:
        sizes: tokens that a column covers, per group.
        reaches: tokens before a request's first computed one that are still read, per group; 0
            where there is no window.
        num_rows: rows of a table.
    """

    def __init__(self, sizes: tuple[int, ...], reaches: tuple[int, ...], num_rows: int) -> None:
        # Groups of one size and reach pass the same columns, which are computed once.
        groups: dict[tuple[int, int], list[int]] = {}
        for group, window in enumerate(zip(sizes, reaches, strict=True)):
            if window[1]:
                groups.setdefault(window, []).append(group)
        self._groups = list(groups.values())  # W entries
        columns = np.array(list(groups), dtype=np.int64).reshape(-1, 2)
        self._sizes, self._reaches = columns[:, :1], columns[:, 1:]
        self._passed = np.zeros((len(groups), num_rows), dtype=np.int64)
        self._num_computed_tokens = np.zeros(num_rows, dtype=np.int32)

    def __bool__(self) -> bool:
        """Return whether any group has a window."""
        return bool(self._groups)

    def move(self, rows: Int64Array, computed: Int64Array) -> Iterator[tuple[int, int, slice]]:
        """Move the windows of rows to so many computed tokens.

        Yields:
            Row, group, and the newly passed columns.
        """
        before = self._passed[:, rows]  # [W, R]
        now = np.maximum(computed - self._reaches, 0) // self._sizes
        self._passed[:, rows] = now
        for column in (now > before).any(axis=0).nonzero()[0].tolist():
            spans = zip(before[:, column].tolist(), now[:, column].tolist(), strict=True)
            for groups, (first, end) in zip(self._groups, spans, strict=True):
                for group in groups if end > first else ():
                    yield int(rows[column]), group, slice(first, end)

    def passed(self, row: int, num_groups: int) -> list[int]:
        """Return the columns of each group that a row has passed."""
        passed = [0] * num_groups
        for groups, count in zip(self._groups, self._passed[:, row].tolist(), strict=True):
            for group in groups:
                passed[group] = count
        return passed

    def forget(self, row: int, num_groups: int) -> list[int]:
        """Return the columns of each group that a row has passed, and reset them to none."""
        passed = self.passed(row, num_groups)
        self._passed[:, row] = 0
        return passed

    def num_computed_tokens(self, rows: Int64Array, computed: Int64Array) -> Int32Array:
        """Record computed tokens; return all as a copy, `[num_rows]`: 0 in rows without any yet."""
        self._num_computed_tokens[rows] = computed
        return self._num_computed_tokens.copy()
