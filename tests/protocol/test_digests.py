"""Digests of host data: equal for equal data, and for nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from bt_bench.protocol import digest_of


@dataclass(frozen=True)
class Point:
    x: int
    y: object


def test_equal_data_have_equal_digests():
    for make in (
        lambda: Point(1, np.arange(6).reshape(2, 3)),
        lambda: {"a": [1, 2.5, "x", None, True], "b": (b"y",)},
        lambda: np.arange(6).reshape(2, 3).T,
    ):
        assert digest_of(make()) == digest_of(make())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, 1.0),
        (1, True),
        ("1", 1),
        ([1, 2], [2, 1]),
        ([[1], 2], [1, [2]]),
        (["ab", "c"], ["a", "bc"]),
        ({"a": 1}, {"b": 1}),
        (Point(1, 2), Point(2, 1)),
        (np.arange(6), np.arange(6).reshape(2, 3)),
        (np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int64)),
        (np.array([0.0]), np.array([-0.0])),
    ],
)
def test_other_data_have_other_digests(one, other):
    assert digest_of(one) != digest_of(other)


def test_what_may_differ_from_run_to_run_is_refused():
    with pytest.raises(TypeError, match="object is in a workload; expected numbers, text"):
        digest_of([object()])
    assert digest_of({1, 2}) == digest_of(frozenset({2, 1})) != digest_of([1, 2])
