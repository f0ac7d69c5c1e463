"""Limits that a trace must fit: the pool of blocks, and the longest request."""

from __future__ import annotations

import numpy as np

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.workloads.assemble import blocks_for, layout_of
from bt_bench.suites.block_tables.workloads.serving.block_pool import MAX_BLOCK_ID
from bt_bench.suites.block_tables.workloads.serving.facts import TraceFacts
from bt_bench.suites.block_tables.workloads.serving.lines import TraceParser
from bt_bench.suites.block_tables.workloads.serving.parameters import ServingParameters
from bt_bench.suites.block_tables.workloads.serving.trace import Trace, find_trace
from bt_bench.suites.block_tables.workloads.steps import Int64Array


def pool_size(parameters: ServingParameters) -> int:
    """Return the number of blocks in the pool that all groups share."""
    if parameters.num_blocks is not None:
        return parameters.num_blocks * len(parameters.block_sizes())
    layout = layout_of(parameters)
    return min(int(parameters.max_num_reqs * sum(layout.widths)), MAX_BLOCK_ID)


def validate_trace(parameters: ServingParameters) -> None:
    """Refuse parameters that do not go together, without reading the trace.

    Raises:
        UsageError: naming parameter, value and limit; or a trace that does not exist.
    """
    find_trace(parameters.trace)
    TraceParser(parameters.trace, parameters.columns, parameters.part, False, TraceFacts())
    if parameters.max_model_len < 2:
        raise UsageError(
            f"'max_model_len' is {parameters.max_model_len}; expected at least 2 for a trace: a "
            "token of context and a generated one"
        )
    if parameters.num_blocks is not None and pool_size(parameters) > MAX_BLOCK_ID:
        raise UsageError(
            f"'num_blocks' is {parameters.num_blocks} for each of "
            f"{len(parameters.block_sizes())} groups, {pool_size(parameters)} in all; expected at "
            f"most {MAX_BLOCK_ID} in all, since block ids are int32"
        )


def fit_lengths(trace: Trace, max_model_len: int) -> tuple[Int64Array, Int64Array]:
    """Return context and generated tokens, cut to at most `max_model_len` together."""
    generated = np.minimum(trace.generated_tokens, max_model_len - 1)
    return np.minimum(trace.context_tokens, max_model_len - generated), generated


def refuse_oversized(
    final: Int64Array, parameters: ServingParameters, num_blocks: int, first: int = 0
) -> None:
    """Refuse requests that need more blocks than the pool has.

    Args:
        final: tokens computed of each request.
        parameters: give the blocks for them.
        num_blocks: blocks of the pool.
        first: number of the first one in the trace.

    Raises:
        UsageError: naming the largest request.
    """
    needed = blocks_for(final, parameters.tokens_per_column()).sum(axis=0)
    largest = int(needed.argmax())
    if needed[largest] > num_blocks:
        raise UsageError(
            f"'num_blocks' is {parameters.num_blocks} per group, {num_blocks} in all; request "
            f"{first + largest} of the trace alone needs {needed[largest]} for its "
            f"{final[largest]} tokens: raise 'num_blocks', or lower 'max_model_len'"
        )
