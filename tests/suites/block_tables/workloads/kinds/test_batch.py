"""One step of a serving engine."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bt_bench.base.errors import UsageError
from bt_bench.protocol import build_workload
from bt_bench.suites.block_tables.workloads import BatchParameters
from bt_bench.suites.block_tables.workloads.workload import Workload


def parameters(**changes: Any) -> BatchParameters:
    return BatchParameters(**({"workload": "batch", "max_num_reqs": 64} | changes))


def blocks_of(workload: Workload, staged_in_step: bool) -> np.ndarray:
    """`[G, R]` blocks of each request: in the setup, or staged in the step."""
    step = workload.steps[0]
    counts = np.zeros((workload.layout.num_groups, workload.layout.max_num_reqs), dtype=np.int64)
    for append in step.appends if staged_in_step else workload.setup:
        counts[:, append.row] += [len(ids) for ids in append.block_ids]
    return counts[:, step.idx_mapping]


@st.composite
def any_batch(draw: st.DrawFn) -> BatchParameters:
    sizes = draw(st.lists(st.sampled_from([1, 3, 16, 64, 544, 4096]), min_size=1, max_size=3))
    return parameters(
        block_size=sizes,
        requests=draw(st.integers(0, 20)),
        prefills=draw(st.integers(0, 3)),
        tokens_per_request=draw(st.integers(1, 8)),
        prefill_tokens=draw(st.sampled_from([1, 7, 64, 1000])),
        min_length=draw(st.sampled_from([1, 2, 100, 3000])),
        staged_writes=draw(st.none() | st.integers(0, 20)),
        max_model_len=draw(st.sampled_from([1, 9, 1000, 8192])),
        mapping=draw(st.sampled_from(["identity", "shuffled"])),
        cp_size=draw(st.sampled_from([1, 1, 2])),
        seed=draw(st.integers(0, 3)),
    )


@settings(max_examples=150, deadline=None)
@given(any_batch())
def test_any_batch_is_refused_or_consistent(given_parameters):
    try:
        workload = build_workload(given_parameters)
    except UsageError:
        return
    step = workload.steps[0]
    counts = np.diff(step.query_start_loc)
    starts = step.positions[step.query_start_loc[:-1]]
    sizes = np.array(workload.layout.tokens_per_block)[:, np.newaxis]
    decodes = given_parameters.requests
    assert step.num_reqs == decodes + given_parameters.prefills
    assert (counts[:decodes] == given_parameters.tokens_per_request).all()
    assert (counts[decodes:] == given_parameters.prefill_tokens).all()
    assert (starts[:decodes] >= given_parameters.min_length).all()
    assert (starts[decodes:] >= given_parameters.min_length - 1).all()
    assert (starts + counts <= given_parameters.max_model_len).all()
    held, new = blocks_of(workload, False), blocks_of(workload, True)
    assert (held == -(-starts // sizes)).all()
    assert (held + new == -(-(starts + counts) // sizes)).all()
    ids = [i for a in workload.setup + step.appends for group in a.block_ids for i in group]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    if given_parameters.staged_writes is not None:
        written = new[:, :decodes] > 0
        assert written.all(axis=0).sum() == written.any(axis=0).sum()
        assert written.any(axis=0).sum() == given_parameters.staged_writes


def test_about_one_in_block_size_decodes_is_written():
    workload = build_workload(parameters(requests=512, max_num_reqs=512, seed=3))
    assert 16 <= workload.steps[0].num_rows_written <= 48


def test_prefills_follow_the_decodes_and_a_new_one_overwrites():
    workload = build_workload(
        parameters(requests=2, prefills=1, prefill_tokens=1000, max_model_len=1500)
    )
    step = workload.steps[0]
    assert step.query_start_loc.tolist() == [0, 1, 2, 1002]
    assert step.positions[2:].tolist() == list(range(1000))
    assert step.appends[-1].overwrite
    assert step.appends[-1].row == step.idx_mapping[2]
    assert step.idx_mapping[2] not in {append.row for append in workload.setup}


def test_long_prefills_have_chunks_behind_them():
    step = build_workload(
        parameters(prefills=4, prefill_tokens=500, min_length=2000, max_model_len=4000)
    ).steps[0]
    starts = step.positions[step.query_start_loc[:-1]]
    assert set(starts) <= {2000, 2500, 3000, 3500}


def test_staged_writes_with_sizes_that_do_not_divide_each_other():
    workload = build_workload(
        parameters(requests=40, block_size=[16, 24], staged_writes=7, tokens_per_request=4)
    )
    written = blocks_of(workload, True)
    assert (written.any(axis=0) == written.all(axis=0)).all()
    assert written.any(axis=0).sum() == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "'requests' and 'prefills' are both 0"),
        ({"requests": 60, "prefills": 5}, "are 60 and 5, together 65; .*'max_num_reqs', 64"),
        ({"prefills": 5}, "has 10240 tokens .*'prefills' 5 × .* 'max_num_batched_tokens', 8192"),
        ({"requests": 1, "min_length": 8192}, "'min_length' is 8192, .* 'max_model_len', 8192"),
        (
            {"prefills": 1, "min_length": 7000},
            "'prefill_tokens' is 2048, .* of 10240 after the step; .*'max_model_len', 8192",
        ),
        (
            {"requests": 60, "dummy_requests": 5},
            "'dummy_requests' is 5, of one token each, beside 60 requests; .*'max_num_reqs' in "
            "all, 64",
        ),
        (
            {"requests": 1, "dummy_requests": 5, "prefills": 3, "max_num_batched_tokens": 6149},
            "'dummy_requests' is 5, .*beside 6145 tokens; .*'max_num_batched_tokens' in all, 6149",
        ),
        ({"requests": 2, "staged_writes": 3}, "'staged_writes' is 3; .*'requests', 2"),
        (
            {"requests": 2, "staged_writes": 1, "block_size": [544, 262_144]},
            "'staged_writes' is 1, .* multiple of 4456448 .*there is none",
        ),
        (  # Sizes are those of a rank.
            {"requests": 2, "staged_writes": 1, "block_size": [544, 65_536], "cp_size": 4},
            "multiple of 4456448 .block size 544, 65536 on each of 4",
        ),
        (
            {"requests": 2, "staged_writes": 1, "block_size": 4, "tokens_per_request": 4},
            "'tokens_per_request' is 4; expected less than the tokens of the smallest block, 4",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    for refuse in (methodcaller("check"), build_workload):
        with pytest.raises(UsageError, match=message):
            refuse(parameters(**changes))


def test_no_length_without_a_write_is_refused():
    lengths = {"min_length": 13, "max_model_len": 20, "tokens_per_request": 4}
    given = parameters(requests=2, staged_writes=1, block_size=16, **lengths)
    with pytest.raises(UsageError, match="for the others no length from"):
        build_workload(given)


def test_dummy_requests_come_last_with_a_token_each():
    plain = build_workload(parameters(requests=5, prefills=1, prefill_tokens=7))
    padded = build_workload(
        parameters(requests=5, prefills=1, prefill_tokens=7, dummy_requests=3, pad_requests=True)
    )
    step, before = padded.steps[0], plain.steps[0]
    assert step.idx_mapping.tolist() == [*before.idx_mapping.tolist(), -1, -1, -1]
    assert np.diff(step.query_start_loc).tolist() == [1] * 5 + [7] + [1] * 3
    assert step.positions.tolist() == [*before.positions.tolist(), 0, 0, 0]
    assert (step.num_reqs_padded, step.num_tokens_padded) == (16, 16)
    assert (padded.setup, step.appends) == (plain.setup, before.appends)
    assert padded.features == {"dummy_requests"}


def test_a_sliding_window_passes_the_tokens_before_the_step_by_row():
    workload = build_workload(
        parameters(requests=5, prefills=1, groups=2, sliding_window=[100, 0], dummy_requests=1)
    )
    step = workload.steps[0]
    starts = step.positions[step.query_start_loc[:-1]][:6]
    assert step.num_computed_tokens.dtype == np.int32
    assert step.num_computed_tokens[step.idx_mapping[:6]].tolist() == starts.tolist()
    assert np.count_nonzero(step.num_computed_tokens) == np.count_nonzero(starts)
    assert workload.layout.reaches == (100, 0)
    assert build_workload(parameters(requests=5)).steps[0].num_computed_tokens is None


def test_with_context_parallelism_a_block_covers_the_tokens_of_all_ranks():
    # The interleave divides 4, and need not divide 15.
    options = {"block_size": [4, 15], "cp_size": 4, "cp_interleave": 2, "unsharded_groups": [1]}
    workload = build_workload(parameters(requests=30, staged_writes=6, cp_rank=3, **options))
    step = workload.steps[0]
    held, new = blocks_of(workload, False), blocks_of(workload, True)
    starts = step.positions[step.query_start_loc[:-1]]
    sizes = np.array([[16], [15]])
    assert (held == -(-starts // sizes)).all()
    assert (held + new == -(-(starts + 1) // sizes)).all()
    assert np.count_nonzero(new.all(axis=0)) == np.count_nonzero(new.any(axis=0)) == 6
    assert workload.layout.widths == (512, 547)
    assert (workload.layout.cp_rank, workload.layout.cp_interleave) == (3, 2)
