"""Workloads of random calls: legal, though no scheduler would make them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from bt_bench.suites.block_tables.workloads.assemble import DUMMY_ROW
from bt_bench.suites.block_tables.workloads.steps import Append, Int64Array, Step
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.layout import TableLayout


def random_workload(
    seed: int,
    layout: TableLayout,
    num_steps: int,
    dtype: Literal["int32", "int64"] = "int64",
    full: bool = False,
    dummies: bool = False,
    custom_outputs: bool = False,
) -> Workload:
    """Build a workload of random calls.

    Batches grow and shrink. Rows are appended to, even several times a step, and overwritten.
    Lists of ids may be empty, and requests may have no token. Positions may lie beyond the row's
    blocks and outside its table. If the layout has a sliding window, most steps pass random numbers
    of computed tokens.

    Args:
        seed: equal seeds give equal workloads.
        layout: sizes and options; small ones, since everything in them is used.
        num_steps: length of the window.
        dtype: dtype of `idx_mapping`.
        full: start with every row nearly full, rather than half of the rows half full or less.
        dummies: mix in requests without a row.
        custom_outputs: the workload's `custom_outputs`.
    """
    rng = np.random.default_rng(seed)
    owned = np.zeros((layout.num_groups, layout.max_num_reqs), dtype=np.int64)
    num_rows = layout.max_num_reqs if full else (layout.max_num_reqs + 1) // 2
    fill = (0.8, 0.9) if full else (0.0, 0.5)
    setup = [
        _random_append(rng, layout, owned, int(row), *fill)
        for row in rng.permutation(layout.max_num_reqs)[:num_rows]
    ]
    steps = [_random_step(rng, layout, owned) for _ in range(num_steps)]
    if dummies:
        steps = [_with_dummies(rng, step) for step in steps]
    if any(layout.sliding_window_reach):
        steps = [_with_computed_tokens(rng, layout, step) for step in steps]
    return Workload(layout, dtype, tuple(setup), tuple(steps), custom_outputs)


def _with_dummies(rng: np.random.Generator, step: Step) -> Step:
    """Turn about a third of a step's requests, at least one, into dummy requests."""
    chosen = rng.random(step.num_reqs) < 0.3
    chosen[rng.integers(step.num_reqs)] = True
    return replace(step, idx_mapping=np.where(chosen, DUMMY_ROW, step.idx_mapping))


def _with_computed_tokens(rng: np.random.Generator, layout: TableLayout, step: Step) -> Step:
    if rng.random() < 0.2:
        return step
    most = max(np.multiply(layout.widths, layout.tokens_per_block)) * 11 // 10
    computed = rng.integers(0, most, layout.max_num_reqs, endpoint=True)
    return replace(step, num_computed_tokens=computed.astype(np.int32))


def _random_append(
    rng: np.random.Generator,
    layout: TableLayout,
    owned: Int64Array,
    row: int,
    least: float,
    most: float,
) -> Append:
    """Draw an append to a row that takes from `least` to `most` of its room in each group."""
    overwrite = bool(rng.random() < 0.3)
    if overwrite:
        owned[:, row] = 0
    ids = []
    for group, width in enumerate(layout.widths):
        room = width - int(owned[group, row])
        low, high = round(room * least), max(1, round(room * most))
        count = int(rng.integers(low, high + 1)) if room else 0
        ids.append(rng.integers(0, 2**31, count).tolist())
        owned[group, row] += count
    return Append(row, tuple(ids), overwrite)


def _random_step(rng: np.random.Generator, layout: TableLayout, owned: Int64Array) -> Step:
    rows_written = rng.integers(0, layout.max_num_reqs, rng.integers(0, layout.max_num_reqs + 3))
    appends = [_random_append(rng, layout, owned, int(row), 0.0, 0.3) for row in rows_written]
    num_reqs = int(rng.integers(1, layout.max_num_reqs + 1))
    idx_mapping = rng.permutation(layout.max_num_reqs)[:num_reqs].astype(np.int64)
    budget = layout.max_num_batched_tokens
    bounds = np.sort(rng.integers(0, rng.integers(0, budget + 1) + 1, num_reqs))
    query_start_loc = np.concatenate(([0], bounds)).astype(np.int32)
    num_tokens = int(query_start_loc[-1])
    # A tenth past the widest row, so that some positions lie outside every table, and a few
    # below 0.
    held = np.multiply(layout.widths, layout.tokens_per_block)
    ends = np.array([held.min(), held.max()])
    positions = rng.integers(-2, ends[rng.integers(0, 2, num_tokens)] * 11 // 10 + 1)
    return Step(
        appends=tuple(appends),
        idx_mapping=idx_mapping,
        query_start_loc=query_start_loc,
        positions=positions.astype(np.int64),
        num_reqs_padded=int(rng.integers(num_reqs, layout.max_num_reqs + 1)),
        num_tokens_padded=int(rng.integers(num_tokens, budget + 1)),
    )
