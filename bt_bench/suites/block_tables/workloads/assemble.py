"""Parts shared by all kinds of workload: layout, padding, a step's arrays, and staged rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.workloads.parameters import TableParameters
from bt_bench.suites.block_tables.workloads.steps import Append, Int32Array, Int64Array, Step
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.layout import TableLayout

TABLE_ITEM_BYTES = 4
SLOT_ITEM_BYTES = 8

DUMMY_ROW = -1
"""The entry of `idx_mapping` for a request that owns no blocks."""


def layout_of(parameters: TableParameters) -> TableLayout:
    """Return the layout of the tables."""
    return TableLayout(
        parameters.block_sizes(),
        parameters.row_widths(),
        parameters.max_num_reqs,
        parameters.max_num_batched_tokens,
        slot_mapping_enabled=parameters.with_slots(),
        sliding_window_reach=parameters.reaches(),
        cp_size=parameters.cp_size,
        cp_rank=parameters.cp_rank,
        cp_interleave=parameters.cp_interleave,
        dcp_sharded=parameters.sharded(),
    )


def estimate_bytes(layout: TableLayout) -> int:
    """Return the device bytes of one variant: source and input tables, and slot mappings."""
    cells: int = layout.max_num_reqs * sum(layout.widths)
    slots: int = layout.num_groups * layout.max_num_batched_tokens
    return 2 * TABLE_ITEM_BYTES * cells + SLOT_ITEM_BYTES * slots


def padded_size(count: int, limit: int) -> int:
    """Return the next size that vLLM captures a CUDA graph for, but at most `limit`.

    The sizes are 1, 2, 4, then multiples of 8 up to 256, then of 16 up to 512. Above, there is no
    graph, and nothing is padded.
    """
    if count > 512:
        return count
    if count > 256:
        size = -(-count // 16) * 16
    elif count > 4:
        size = -(-count // 8) * 8
    else:
        size = 1 << max(count - 1, 0).bit_length()
    return max(count, min(size, limit))


def assemble_step(
    parameters: TableParameters,
    appends: tuple[Append, ...],
    rows: Int64Array,
    starts: Int64Array,
    counts: Int64Array,
    num_computed_tokens: Int32Array | None = None,
) -> Step:
    """Assemble a step from its requests; its arrays share no memory with the arguments.

    Args:
        parameters: give the padding.
        appends: staged before the step.
        rows: `[R]`, request rows in batch order.
        starts: `[R]`, position of each request's first token in the step.
        counts: `[R]`, tokens of each request in the step, 1 or more.
        num_computed_tokens: `[max_num_reqs]`, where there is a sliding window.
    """
    num_reqs = len(rows)
    query_start_loc = np.zeros(num_reqs + 1, dtype=np.int32)
    np.cumsum(counts, out=query_start_loc[1:])
    num_tokens = int(query_start_loc[-1])
    if num_tokens == num_reqs:  # one token each
        positions = starts.astype(np.int64)
    else:
        positions = np.arange(num_tokens, dtype=np.int64)
        positions += np.repeat(starts - query_start_loc[:-1], counts)
    pad = parameters.pad_requests
    return Step(
        appends=appends,
        idx_mapping=rows.astype(np.int64),
        query_start_loc=query_start_loc,
        positions=positions,
        num_reqs_padded=padded_size(num_reqs, parameters.max_num_reqs) if pad else num_reqs,
        num_tokens_padded=(
            padded_size(num_tokens, parameters.max_num_batched_tokens) if pad else num_tokens
        ),
        num_computed_tokens=None if num_computed_tokens is None else num_computed_tokens.copy(),
    )


def single_step_workload(
    parameters: TableParameters,
    dummy_requests: int,
    rows: Int64Array,
    starts: Int64Array,
    counts: Int64Array,
    staged: tuple[tuple[Append, ...], tuple[Append, ...]],
) -> Workload:
    """Build a workload of one step, with the additions that its parameters' options require.

    Dummy requests come last in the batch, as padding does, each with one token at position 0.

    Args:
        parameters: parameters of the workload.
        dummy_requests: number of dummy requests behind the others.
        rows: `[R]`, request rows in batch order, without dummy requests.
        starts: `[R]`, position of each request's first token in the step.
        counts: `[R]`, tokens of each request in the step.
        staged: appends of the setup, and of the step.
    """
    layout = layout_of(parameters)
    num_computed_tokens = None
    if any(layout.reaches):
        num_computed_tokens = np.zeros(layout.max_num_reqs, dtype=np.int32)
        num_computed_tokens[rows] = starts
    dummies = np.ones(dummy_requests, dtype=np.int64)
    setup, appends = staged
    step = assemble_step(
        parameters,
        appends,
        np.concatenate((rows, dummies * DUMMY_ROW)),
        np.concatenate((starts, dummies * 0)),
        np.concatenate((counts, dummies)),
        num_computed_tokens,
    )
    return Workload(layout, parameters.idx_mapping_dtype, setup, (step,), parameters.custom_outputs)


def validate_counts(parameters: TableParameters, requests: int, tokens: int) -> None:
    """Refuse more requests or tokens than the tables have room for.

    Raises:
        UsageError: naming parameter, value and limit.
    """
    for name, count, limit in _limits(requests, tokens):
        most = getattr(parameters, limit)
        if count > most:
            raise UsageError(f"'{name}' is {count}; expected at most '{limit}', {most}")


def validate_dummy_requests(
    parameters: TableParameters, dummies: int, requests: int, tokens: int
) -> None:
    """Refuse dummy requests that do not fit beside so many requests and tokens.

    Raises:
        UsageError: naming parameter, value and limit.
    """
    for what, count, limit in _limits(requests, tokens):
        most = getattr(parameters, limit)
        if count + dummies > most:
            raise UsageError(
                f"'dummy_requests' is {dummies}, of one token each, beside {count} {what}; "
                f"expected at most '{limit}' in all, {most}"
            )


def _limits(requests: int, tokens: int) -> Iterator[tuple[str, int, str]]:
    """Yield name, count, and name of the limit, of requests and of tokens."""
    yield "requests", requests, "max_num_reqs"
    yield "tokens", tokens, "max_num_batched_tokens"


def step_of_requests(
    appends: list[Append],
    rows: list[int],
    positions: Sequence[Iterable[int]],
    spare_rows: int = 0,
    spare_tokens: int = 0,
    num_computed_tokens: Sequence[int] | None = None,
) -> Step:
    """Build a step from its requests: each one's row (-1: a dummy) and its tokens' positions.

    Args:
        appends: staged before the step.
        rows: one per request.
        positions: one sequence per request.
        spare_rows: rows that are read beyond the requests.
        spare_tokens: slots that are read beyond the tokens.
        num_computed_tokens: by request row; `None`: not passed.
    """
    tokens = [list(request) for request in positions]
    num_tokens = sum(map(len, tokens))
    return Step(
        appends=tuple(appends),
        idx_mapping=np.array(rows, dtype=np.int64),
        query_start_loc=np.cumsum([0, *map(len, tokens)]).astype(np.int32),
        positions=np.array([p for request in tokens for p in request], dtype=np.int64),
        num_reqs_padded=len(rows) + spare_rows,
        num_tokens_padded=num_tokens + spare_tokens,
        num_computed_tokens=(
            None if num_computed_tokens is None else np.array(num_computed_tokens, dtype=np.int32)
        ),
    )


def stage_rows(
    rows: Int64Array, held: Int64Array, new: Int64Array, generator: np.random.Generator
) -> tuple[tuple[Append, ...], tuple[Append, ...]]:
    """Give blocks to the rows of a single step; return `(setup, appends of the step)`.

    Ids are a random permutation of `1 … n`: each belongs to one row of one group, as from a pool
    that has long been in use. A row that holds nothing yet in any group has no append in the
    setup, and its append in the step overwrites, as for a new request.

    Args:
        rows: `[R]`, request rows in batch order.
        held: `[G, R]`, blocks that each row holds before the step.
        new: `[G, R]`, blocks that it receives in the step.
        generator: source of the permutation.
    """
    ids = generator.permutation(np.arange(1, int(held.sum() + new.sum()) + 1, dtype=np.int32))
    setup: list[Append] = []
    appends: list[Append] = []
    first = 0
    for row, row_held, row_new in zip(rows.tolist(), held.T.tolist(), new.T.tolist(), strict=True):
        before, during = [], []
        for num_held, num_new in zip(row_held, row_new, strict=True):
            middle, end = first + num_held, first + num_held + num_new
            before.append(ids[first:middle].tolist())
            during.append(ids[middle:end].tolist())
            first = end
        if any(row_held):
            setup.append(Append(row, tuple(before), overwrite=True))
        if any(row_new):
            appends.append(Append(row, tuple(during), overwrite=not any(row_held)))
    return tuple(setup), tuple(appends)


def choose_rows(
    count: int, parameters: TableParameters, shuffled: bool, generator: np.random.Generator
) -> Int64Array:
    """Choose the rows of `count` requests: the first ones, or a random choice of all."""
    if shuffled:
        return generator.choice(parameters.max_num_reqs, count, replace=False).astype(np.int64)
    return np.arange(count, dtype=np.int64)


def blocks_for(tokens: Int64Array, tokens_per_block: tuple[int, ...]) -> Int64Array:
    """Return the number of blocks that hold so many tokens, rounded up, `[G, R]`."""
    return -(-tokens // np.array(tokens_per_block, dtype=np.int64)[:, np.newaxis])
