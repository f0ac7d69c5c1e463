"""Padding and the arrays of a step."""

from __future__ import annotations

import numpy as np
import pytest

from bt_bench.suites.block_tables.workloads.assemble import assemble_step, padded_size
from bt_bench.suites.block_tables.workloads.parameters import TableParameters


@pytest.mark.parametrize(
    ("count", "padded"),
    [
        *((1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (249, 256), (256, 256), (257, 272)),
        *((500, 512), (512, 512), (513, 513), (8000, 8000)),
    ],
)
def test_padding_goes_to_the_next_captured_size(count, padded):
    assert padded_size(count, 8192) == padded


def test_padding_stays_within_the_limit():
    assert padded_size(5, 6) == 6
    assert padded_size(6, 6) == 6


@pytest.mark.parametrize("counts", [[3, 1, 2], [1, 1, 1]])
def test_arrays_of_a_step_have_the_documented_dtypes_and_share_nothing(counts):
    rows = np.array([5, 0, 2], dtype=np.int64)
    starts = np.array([7, 0, 4], dtype=np.int64)
    counts = np.array(counts, dtype=np.int64)
    step = assemble_step(TableParameters(pad_requests=True), (), rows, starts, counts)
    assert step.idx_mapping.dtype == step.positions.dtype == np.int64
    assert step.query_start_loc.dtype == np.int32
    assert step.query_start_loc.tolist() == [0, *np.cumsum(counts)]
    expected = [start + i for start, n in zip(starts, counts, strict=True) for i in range(n)]
    assert step.positions.tolist() == expected
    assert step.num_reqs_padded == 4
    assert step.num_tokens_padded == (8 if step.num_tokens > 4 else 4)
    rows[:] = starts[:] = counts[:] = -9
    assert step.idx_mapping.tolist() == [5, 0, 2]
    assert min(step.positions) >= 0
    assert step.query_start_loc[1] > 0
