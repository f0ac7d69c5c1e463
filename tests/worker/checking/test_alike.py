"""What wrong elements have in common."""

from __future__ import annotations

import numpy as np
import pytest

from bt_bench.worker.checking.alike import in_common


@pytest.mark.parametrize(
    ("found", "wanted", "said"),
    [
        ([2], [1], ""),
        ([2, 3, 9], [1, 2, 8], ", each by +1"),
        ([1, 2], [9, 10], ", each by -8"),
        ([0, 0, 0], [4, 5, 6], ", all are 0"),
        ([7, 7], [6, 6], ", all are 7"),
        ([2, 3], [1, 1], ""),
        ([2**63 - 1, -(2**63)], [-(2**63), 2**63 - 1], ""),
        ([1, -(2**63)], [0, 2**63 - 1], ""),  # both are 1 modulo 2**64
        ([2**63 - 1, 2**63 - 2], [-2, -3], f", each by +{2**63 + 1}"),
    ],
)
def test_it_is_said_where_there_is_something(found, wanted, said):
    assert in_common(np.array(found, np.int64), np.array(wanted, np.int64)) == said


def test_floats_are_alike_only_if_they_are_equal():
    wanted = np.array([1.0, 2.0])
    assert in_common(wanted + 1, wanted) == ""
    assert in_common(np.zeros(2), wanted) == ", all are 0.0"
