"""The conformance workloads: legal, small, and with the corners that they are there for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.legality import assert_legal

from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_kernels.layout import CONTEXT_PARALLELISM, FEATURES, SLIDING_WINDOW
from bt_kernels.one_launch import PAYLOADS_INTERPRETED
from bt_kernels.one_launch.shapes import MOST_CARRIED
from bt_kernels.staging import BITMAP_ROWS

WORKLOADS = conformance_workloads(seed=0)


@pytest.mark.parametrize("name", WORKLOADS)
def test_conformance_workloads_are_legal_and_small(name):
    workload = WORKLOADS[name]
    assert_legal(workload)
    if workload.large:
        return
    rows = workload.layout.num_groups * sum(step.num_reqs for step in workload.steps)
    assert rows <= (200 if name == "edges" else 80)  # about as many programs, at 1 ms each


def test_each_feature_is_met_alone_and_with_all_that_go_with_it():
    needed = [workload.features for workload in WORKLOADS.values()]
    assert frozenset() in needed
    for feature in FEATURES:
        assert {feature} in needed
    for other in (CONTEXT_PARALLELISM, SLIDING_WINDOW):
        dtypes = {
            workload.idx_mapping_dtype
            for workload in WORKLOADS.values()
            if workload.features == FEATURES - {other}
        }
        assert dtypes == {"int32", "int64"}


def test_every_rank_is_met():
    layouts = [w.layout for w in WORKLOADS.values() if w.features == {CONTEXT_PARALLELISM}]
    ranks = {(layout.cp_size, layout.cp_rank) for layout in layouts}
    assert ranks == {(size, rank) for size in (2, 4) for rank in range(size)}
    assert {layout.cp_interleave == 1 for layout in layouts} == {True, False}
    assert all(not all(layout.dcp_sharded) for layout in layouts)


def test_new_inputs_for_each_seed():
    other = conformance_workloads(seed=1)
    assert list(other) == list(WORKLOADS)
    for name in ("corners", "combined_window", "combined_cp"):
        assert other[name].digest() != WORKLOADS[name].digest()
        assert conformance_workloads(seed=0)[name].digest() == WORKLOADS[name].digest()


def test_dummies_would_be_seen_as_the_first_row_or_the_last_one():
    workload = WORKLOADS["dummies"]
    blocks = {append.row: min(map(len, append.block_ids)) for append in workload.setup}
    assert blocks[0] > 0
    assert blocks[workload.layout.max_num_reqs - 1] > 0
    assert any((step.idx_mapping == -1).all() for step in workload.steps)
    first = workload.steps[0].idx_mapping == -1
    assert first[0]
    assert first[-1]
    assert first[1:-1].any()


def test_windows_begin_at_every_edge():
    """Per group, how many of a row's blocks lie before the window: none, some, and all."""
    workload = WORKLOADS["window"]
    layout = workload.layout
    owned = np.zeros((layout.num_groups, layout.max_num_reqs), dtype=np.int64)
    seen = set()
    for append in workload.setup:
        owned[:, append.row] = [len(ids) for ids in append.block_ids]
    for step in workload.steps[:2]:
        computed = step.num_computed_tokens[step.idx_mapping].astype(np.int64)
        for group in (0, 2):
            tokens = np.maximum(computed - layout.reaches[group], 0)
            columns = tokens // layout.block_sizes[group]
            held = owned[group, step.idx_mapping]
            seen |= {(group, "none") for _ in columns[columns == 0]}
            seen |= {(group, "some") for _ in columns[(columns > 0) & (columns < held)]}
            seen |= {(group, "past") for _ in columns[columns > held]}
            seen |= {(group, "edge") for _ in tokens[tokens % layout.block_sizes[group] == 0]}
    assert seen == {(group, what) for group in (0, 2) for what in ("none", "some", "past", "edge")}
    assert layout.reaches[1] == 0
    # In the last step all that was written before a window is read.
    whole = [step.num_computed_tokens is None for step in workload.steps]
    assert whole.count(True) == 2
    assert whole[-1]
    most = max(len(ids) for append in workload.steps[-2].appends for ids in append.block_ids)
    assert most > MOST_CARRIED  # as parameters, so that a gather reads them from memory


def test_a_ring_group_has_positions_inside_and_far_outside():
    workload = WORKLOADS["disabled"]
    assert workload.layout.widths[1] == 1
    assert not workload.layout.slot_mapping_enabled[1]
    size = workload.layout.block_sizes[1]
    positions = workload.steps[0].positions
    assert (positions < size).any()
    assert (positions >= 500_000).any()


def test_batches_shrink_while_padding_stays():
    steps = WORKLOADS["shrinking"].steps
    for before, after in pairwise(steps):
        assert after.num_tokens < before.num_tokens
        assert after.num_reqs < before.num_reqs
        assert after.num_tokens < after.num_tokens_padded
        assert after.num_reqs < after.num_reqs_padded <= before.num_reqs


def test_decoding_has_rows_far_apart_and_few_and_many_writes():
    workload = WORKLOADS["decoding"]
    rows = {int(row) for step in workload.steps for row in step.idx_mapping}
    assert {row // BITMAP_ROWS for row in rows} == {0, 1, 2}
    assert {BITMAP_ROWS - 1, BITMAP_ROWS} <= rows
    of_steps = [workload.layout.num_groups * len(step.appends) for step in workload.steps]
    single, most = PAYLOADS_INTERPRETED.single_ids, PAYLOADS_INTERPRETED.many_ids
    assert 0 in of_steps
    assert any(0 < number <= single for number in of_steps)
    assert any(single < number <= most for number in of_steps)
    assert any(number > most for number in of_steps)
