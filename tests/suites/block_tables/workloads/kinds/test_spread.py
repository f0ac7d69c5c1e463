"""Steps whose tokens are spread in a chosen way."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

import numpy as np
import pytest

from bt_bench.base.errors import UsageError
from bt_bench.protocol import build_workload
from bt_bench.suites.block_tables.workloads import SpreadParameters
from bt_bench.suites.block_tables.workloads.kinds.spread import token_counts

SIZES = {"max_num_reqs": 64, "max_num_batched_tokens": 512, "max_model_len": 256}


def parameters(**changes: Any) -> SpreadParameters:
    given = {"workload": "spread", "requests": 6, "tokens": 64, **SIZES}
    return SpreadParameters(**(given | changes))


def counts_of(**changes: Any) -> list[int]:
    """The tokens of each request, as the step has them."""
    step = build_workload(parameters(**changes)).steps[0]
    counts: list[int] = np.diff(step.query_start_loc).tolist()
    assert counts == token_counts(parameters(**changes)).tolist()
    return counts


def written_of(**changes: Any) -> list[list[int]]:
    """Block ids that each row receives, per group, in batch order."""
    workload = build_workload(parameters(**changes))
    step = workload.steps[0]
    by_row = {append.row: list(map(len, append.block_ids)) for append in step.appends}
    none = [0] * workload.layout.num_groups
    return [by_row.get(row, none) for row in step.idx_mapping.tolist()]


def test_evenly():
    assert counts_of() == [11, 11, 11, 11, 10, 10]
    assert counts_of(tokens=6) == [1] * 6


def test_all_that_is_left_over_in_one_request():
    assert counts_of(spread="one") == [1, 1, 1, 59, 1, 1]
    assert counts_of(requests=1, spread="one") == [64]


def test_a_power_law():
    counts = counts_of(spread="power_law", tokens=506)
    # 500 tokens by 1, 1/2 … 1/6 of 2.45, to the next whole sum, beside one for each.
    assert sorted(counts, reverse=True) == [205, 103, 69, 52, 42, 35]
    assert counts != sorted(counts, reverse=True)
    assert counts == counts_of(spread="power_law", tokens=506)
    assert counts != counts_of(spread="power_law", tokens=506, seed=1)
    assert sum(counts_of(spread="power_law", requests=50, tokens=61)) == 61


@pytest.mark.parametrize("spread", ["even", "one", "power_law"])
def test_fewer_tokens_than_requests(spread):
    assert counts_of(tokens=2, spread=spread) == [1, 1, 0, 0, 0, 0]
    assert counts_of(tokens=0, spread=spread) == [0] * 6


@pytest.mark.parametrize("spread", ["even", "one", "power_law"])
@pytest.mark.parametrize("writes", ["none", "few", "many", "long", 0])
def test_an_empty_batch(spread, writes):
    workload = build_workload(parameters(requests=0, tokens=0, spread=spread, writes=writes))
    step = workload.steps[0]
    assert (step.num_reqs, step.num_tokens, step.num_reqs_padded) == (0, 0, 0)
    assert (workload.setup, step.appends) == ((), ())


def test_an_empty_batch_of_padding_and_dummies():
    padded = build_workload(parameters(requests=0, tokens=0, pad_requests=True)).steps[0]
    assert (padded.num_reqs_padded, padded.num_tokens_padded) == (1, 1)
    dummies = build_workload(parameters(requests=0, tokens=0, dummy_requests=3)).steps[0]
    assert dummies.idx_mapping.tolist() == [-1] * 3
    assert dummies.positions.tolist() == [0] * 3


def test_lengths_rise_to_the_longest():
    many = build_workload(parameters(requests=64, longest=32, tokens=64, mapping="identity"))
    assert many.steps[0].positions.tolist() == [0, *(max(0, i // 2 - 1) for i in range(2, 65))]
    workload = build_workload(parameters(longest=96, tokens=6, mapping="identity"))
    assert workload.steps[0].positions.tolist() == [15, 31, 47, 63, 79, 95]
    assert workload.layout.widths == (16,)
    # Those with more tokens in the step than that are as long as they need to be.
    step = build_workload(parameters(longest=6, tokens=64, mapping="identity")).steps[0]
    assert step.positions[:11].tolist() == list(range(11))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"writes": "none"}, [0, 0, 0, 0, 0, 0]),
        ({"writes": "few", "requests": 12}, [1] * 8 + [0] * 4),
        ({"writes": "few"}, [1] * 6),
        ({"writes": "many", "requests": 12}, [1] * 12),
        ({"writes": "long"}, [0, 0, 0, 0, 14, 16]),
        ({"writes": "long", "requests": 1}, [16]),
        ({"writes": 2}, [1, 1, 0, 0, 0, 0]),
        # Rows have 3, 6, 8, 11, 14 and 16 blocks.
        ({"writes": "many", "written_ids": 7}, [3, 6, 7, 7, 7, 7]),
    ],
)
def test_writes(changes, expected):
    assert written_of(**changes) == [[ids] for ids in expected]


def test_writes_do_not_depend_on_how_tokens_are_spread():
    found = [written_of(spread=spread, writes=3) for spread in ("even", "one", "power_law")]
    assert found[0] == found[1] == found[2]


def test_groups_of_other_block_sizes():
    # A row of two blocks of 128 tokens gets no third one.
    sizes = {"block_size": [16, 128], "writes": "many", "written_ids": 4}
    assert written_of(**sizes) == [[3, 1], [4, 1], [4, 1], [4, 2], [4, 2], [4, 2]]


@pytest.mark.parametrize("spread", ["even", "one", "power_law"])
@pytest.mark.parametrize("writes", ["none", "few", "many", "long"])
def test_tokens_lie_in_blocks_that_the_row_has(spread, writes):
    changes = {"spread": spread, "writes": writes, "block_size": [16, 48], "mapping": "shuffled"}
    workload = build_workload(parameters(**changes))
    step = workload.steps[0]
    held = np.zeros((2, 64), dtype=np.int64)
    for append in (*workload.setup, *step.appends):
        held[:, append.row] += [len(ids) for ids in append.block_ids]
    rows = np.repeat(step.idx_mapping, np.diff(step.query_start_loc))
    for group, size in enumerate((16, 48)):
        assert (step.positions // size < held[group, rows]).all()
    assert workload.steps[0].num_rows_written == {"none": 0, "long": 2}.get(writes, 6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requests": 65}, "'requests' is 65; expected at most 'max_num_reqs', 64"),
        ({"tokens": 513}, "'tokens' is 513; expected at most 'max_num_batched_tokens', 512"),
        ({"requests": 0}, "'tokens' is 64 and 'requests' is 0; expected no tokens either"),
        ({"longest": 257}, "'longest' is 257; expected at most 'max_model_len', 256"),
        (
            {"tokens": 300, "spread": "one"},
            "'tokens' is 300, and 'spread' 'one' gives 295 to one of 6 requests; expected at "
            "most 'max_model_len' for each, 256",
        ),
        ({"writes": 7}, "'writes' is 7; expected at most 'requests', 6"),
        ({"writes": "long", "written_ids": 2}, "'written_ids' is 2 beside 'writes' 'long'"),
        ({"dummy_requests": 59}, "'dummy_requests' is 59, .* beside 6 requests"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    for refuse in (methodcaller("check"), build_workload):
        with pytest.raises(UsageError, match=message):
            refuse(parameters(**changes))


def test_it_is_described():
    described = parameters(requests=0, tokens=0).describe()
    assert described.kind == "spread"
    assert (described.requests_served, described.block_allocations) == (0, 0)
    assert parameters(writes="many").describe().steps.rows_written.max == 6
