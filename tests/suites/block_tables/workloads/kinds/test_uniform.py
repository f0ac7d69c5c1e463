"""The origin's workload."""

from __future__ import annotations

from collections import Counter
from operator import methodcaller
from typing import Any

import numpy as np
import pytest

from bt_bench.base.errors import UsageError
from bt_bench.protocol import build_workload
from bt_bench.suites.block_tables.workloads import UniformParameters

ORIGIN = {"max_num_reqs": 256, "max_num_batched_tokens": 8192, "max_model_len": 4096}


def parameters(**changes: Any) -> UniformParameters:
    return UniformParameters(**({**ORIGIN, "requests": 32, "tokens": 512} | changes))


@pytest.mark.parametrize(
    ("requests", "tokens", "groups"),
    [(32, 512, 1), (128, 2048, 1), (256, 8192, 1), (128, 2048, 2), (128, 2048, 4)],
)
def test_the_five_of_the_origin(requests, tokens, groups):
    workload = build_workload(parameters(requests=requests, tokens=tokens, groups=groups))
    step = workload.steps[0]
    each = tokens // requests
    lengths = [max((i + 1) * (4096 // requests), each) for i in range(requests)]
    assert len(workload.steps) == 1
    assert step.idx_mapping.tolist() == list(range(requests))
    assert step.query_start_loc.tolist() == [i * each for i in range(requests + 1)]
    for i, length in enumerate(lengths):
        assert step.positions[i * each : (i + 1) * each].tolist() == list(
            range(length - each, length)
        )
    assert [append.row for append in step.appends] == list(range(32))
    for group in range(groups):
        owned: Counter[int] = Counter()
        for append in workload.setup + step.appends:
            owned[append.row] += len(append.block_ids[group])
        assert [owned[i] for i in range(requests)] == [-(-length // 16) for length in lengths]
        assert all(len(append.block_ids[group]) == 1 for append in step.appends)


def test_block_ids_are_unique_and_in_no_order():
    workload = build_workload(parameters(groups=2))
    ids = [
        block_id
        for append in workload.setup + workload.steps[0].appends
        for group_ids in append.block_ids
        for block_id in group_ids
    ]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    assert ids != sorted(ids)
    assert isinstance(ids[0], int)


def test_a_row_with_a_single_block_is_new_in_the_step():
    # Lengths 8, 16, 24, 32: one block of 16 for the first two, and one of 64 for all.
    workload = build_workload(
        parameters(requests=4, tokens=4, max_model_len=32, block_size=[16, 64], staged_writes=3)
    )
    assert [(append.row, append.overwrite) for append in workload.steps[0].appends] == [
        (0, True),
        (1, True),
        (2, False),
    ]
    assert [append.row for append in workload.setup] == [2, 3]
    assert [list(map(len, append.block_ids)) for append in workload.setup] == [[1, 0], [2, 1]]
    assert all(append.overwrite for append in workload.setup)


def test_remaining_tokens_go_to_the_first_requests():
    step = build_workload(parameters(requests=3, tokens=5, staged_writes=0)).steps[0]
    assert np.diff(step.query_start_loc).tolist() == [2, 2, 1]
    assert (step.positions >= 0).all()
    assert step.appends == ()


def test_more_requests_than_tokens_of_length():
    step = build_workload(parameters(requests=8, tokens=9, max_model_len=4)).steps[0]
    assert step.positions.tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0]


def test_shuffled_rows_are_a_choice_of_all_rows():
    step = build_workload(parameters(mapping="shuffled")).steps[0]
    rows = step.idx_mapping.tolist()
    assert len(set(rows)) == 32
    assert rows != sorted(rows)
    assert max(rows) > 32
    assert max(rows) < 256


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requests": 257}, "'requests' is 257; expected at most 'max_num_reqs', 256"),
        ({"tokens": 9000}, "'tokens' is 9000; .* 'max_num_batched_tokens', 8192"),
        ({"tokens": 31}, "'tokens' is 31; expected at least 'requests', 32"),
        ({"requests": 1, "tokens": 4097}, "'tokens' is 4097, .* 'max_model_len' for each, 4096"),
        ({"staged_writes": 33}, "'staged_writes' is 33; expected at most 'requests', 32"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    for refuse in (methodcaller("check"), build_workload):
        with pytest.raises(UsageError, match=message):
            refuse(parameters(**changes))
