"""What all kinds of workload share: layout, padding, the arrays of a step, and staged rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bt_bench.workloads.parameters import TableParameters
from bt_bench.workloads.steps import Append, Int64Array, Step
from bt_kernels.layout import TableLayout

Int32Array = npt.NDArray[np.int32]


def layout_of(parameters: TableParameters) -> TableLayout:
    """The layout whose rows just hold `max_model_len` tokens in every group."""
    return TableLayout.for_length(
        parameters.block_sizes(),
        parameters.max_model_len,
        parameters.max_num_reqs,
        parameters.max_num_batched_tokens,
    )


def padded_size(count: int, limit: int) -> int:
    """The next size that vLLM captures a CUDA graph for, but at most `limit`.

    These are 1, 2, 4, then multiples of 8 to 256, then of 16 to 512. Above there is no graph, and
    nothing is padded.
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
) -> Step:
    """The arrays of a step, which are fresh: nothing is shared with the arguments.

    Args:
        parameters: for the padding.
        appends: staged before the step.
        rows: `[R]`, request rows in batch order.
        starts: `[R]`, position of each request's first token in the step.
        counts: `[R]`, tokens of each request in the step, 1 or more.
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
    )


def stage_rows(
    rows: Int64Array, held: Int64Array, new: Int64Array, generator: np.random.Generator
) -> tuple[tuple[Append, ...], tuple[Append, ...]]:
    """Gives blocks to the rows of a single step: `(setup, appends of the step)`.

    Ids are a random permutation of `1 … n`, so that each belongs to one row of one group, as from
    a pool that has been in use for long. A row that holds nothing in any group yet has no append
    in the setup, and its append in the step is that of a new request.

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
    """The rows of `count` requests: the first ones, or a random choice of all of them."""
    if shuffled:
        return generator.choice(parameters.max_num_reqs, count, replace=False).astype(np.int64)
    return np.arange(count, dtype=np.int64)


def blocks_for(tokens: Int64Array, block_sizes: tuple[int, ...]) -> Int64Array:
    """`[G, R]`: blocks that hold so many tokens, rounded up."""
    return -(-tokens // np.array(block_sizes, dtype=np.int64)[:, np.newaxis])
