"""Who takes the least time, in one line."""

from __future__ import annotations

import pytest

from bt_bench.report.run.headlines import _won


@pytest.mark.parametrize(
    ("counts", "total", "told"),
    [
        ({("a",): 2}, 2, ["a in all 2 cases"]),
        ({("a",): 1}, 1, ["a in 1 of 1 cases"]),
        (
            {("b", "c"): 3, ("a",): 1},
            4,
            ["a in 1 of 4 cases", "b and c, level in 3 of 4 cases (their intervals overlap)"],
        ),
        (
            {("a", "b"): 5, ("b",): 4, ("b", "c"): 2},
            12,
            [
                "b in 4 of 12 cases",
                "b and others, level in 7 of 12 cases (their intervals overlap)",
            ],
        ),
        (
            {("a", "b"): 5, ("b", "c"): 2, ("a", "c"): 1},
            8,
            [
                "b and others, level in 7 of 8 cases (their intervals overlap)",
                "others among themselves in 1 of 8 cases",
            ],
        ),
        (  # of two that are level equally often, the one that also wins alone
            {("a", "b", "c"): 1, ("a", "b"): 1, ("b",): 1},
            3,
            ["b in 1 of 3 cases", "b and others, level in 2 of 3 cases (their intervals overlap)"],
        ),
        (
            {("a", "b", "c", "d", "e", "f"): 1},
            1,
            ["a, b, c, d and 2 more, level in 1 of 1 cases (their intervals overlap)"],
        ),
    ],
)
def test_who_is_alone_comes_first_and_ties_are_one_clause(counts, total, told):
    assert [*_won(counts, total)] == told
