"""What every workload keeps to, and so what a variant may rely on."""

from __future__ import annotations

import numpy as np

from bt_bench.suites.block_tables.workloads.steps import Append, Step
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.layout import TableLayout


def assert_legal(workload: Workload) -> None:
    """Every row, count, size and dtype of it is one that an engine could give."""
    owned = np.zeros((workload.layout.num_groups, workload.layout.max_num_reqs), dtype=np.int64)
    _assert_appends_fit(workload.layout, workload.setup, owned)
    for step in workload.steps:
        _assert_appends_fit(workload.layout, step.appends, owned)
        _assert_step_fits(workload.layout, step)


def _assert_appends_fit(
    layout: TableLayout, appends: tuple[Append, ...], owned: np.ndarray
) -> None:
    for append in appends:
        assert 0 <= append.row < layout.max_num_reqs
        if append.overwrite:
            owned[:, append.row] = 0
        owned[:, append.row] += [len(ids) for ids in append.block_ids]
        assert (owned[:, append.row] <= layout.widths).all()
        assert all(0 <= block_id < 2**31 for ids in append.block_ids for block_id in ids)


def _assert_step_fits(layout: TableLayout, step: Step) -> None:
    rows = step.idx_mapping[step.idx_mapping != -1]
    assert step.idx_mapping.dtype == step.positions.dtype == np.int64
    assert len(set(rows.tolist())) == len(rows)
    assert ((rows >= 0) & (rows < layout.max_num_reqs)).all()
    assert step.num_reqs <= step.num_reqs_padded <= layout.max_num_reqs
    assert step.num_tokens <= step.num_tokens_padded <= layout.max_num_batched_tokens
    assert step.query_start_loc.dtype == np.int32
    assert step.query_start_loc[0] == 0
    assert step.query_start_loc[-1] == step.num_tokens
    assert (np.diff(step.query_start_loc) >= 0).all()
    if step.num_computed_tokens is not None:
        assert step.num_computed_tokens.dtype == np.int32
        assert step.num_computed_tokens.shape == (layout.max_num_reqs,)
        assert (step.num_computed_tokens >= 0).all()
