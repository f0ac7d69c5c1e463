"""The origin's workload: one step, equal token counts, lengths rising with the batch index."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.workloads.assemble import (
    blocks_for,
    choose_rows,
    single_step_workload,
    stage_rows,
    tokens_per_block,
    validate_dummy_requests,
)
from bt_bench.suites.block_tables.workloads.kind import WorkloadParameters
from bt_bench.suites.block_tables.workloads.parameters import MAX_REQS, MAX_TOKENS
from bt_bench.suites.block_tables.workloads.workload import Workload
from bt_kernels.layout import DUMMY_REQUESTS

DEFAULT_STAGED_WRITES = 32


class UniformParameters(WorkloadParameters):
    """The origin's workload: one step, equal token counts, lengths rising with the batch index.

    Request i has length `max((i + 1) * (max_model_len // R), T // R)`, the blocks for it, and its
    last `T // R` positions in the step; the first `staged_writes` rows receive their last block
    in the step. Remaining tokens (`T % R`) go one each to the first requests.
    """

    workload: Literal["uniform"] = "uniform"
    requests: int = Field(ge=1, le=MAX_REQS, description="R")
    tokens: int = Field(ge=1, le=MAX_TOKENS, description="T")
    staged_writes: int | None = Field(
        default=None, ge=0, le=MAX_REQS, description="rows written; default min(R, 32)"
    )
    dummy_requests: int = Field(
        default=0, ge=0, le=MAX_REQS, description="further requests, of one token and no row each"
    )
    mapping: Literal["identity", "shuffled"] = "identity"

    def check(self) -> None:
        """See the base class."""
        validate_uniform(self)

    def build(self) -> Workload:
        """See the base class."""
        return build_uniform(self)

    @property
    def features(self) -> frozenset[str]:
        """See the base class."""
        return super().features | ({DUMMY_REQUESTS} if self.dummy_requests else frozenset())


def build_uniform(parameters: UniformParameters) -> Workload:
    """Build the step that `UniformParameters` describes.

    A request is never shorter than its tokens in the step, even if `tokens % requests` gives it
    one more. A written row of a single block holds nothing before the step.
    """
    generator = np.random.default_rng(parameters.seed)
    requests = parameters.requests
    index = np.arange(requests, dtype=np.int64)
    counts = parameters.tokens // requests + (index < parameters.tokens % requests)
    lengths = np.maximum((index + 1) * (parameters.max_model_len // requests), counts)
    rows = choose_rows(requests, parameters, parameters.mapping == "shuffled", generator)
    blocks = blocks_for(lengths, tokens_per_block(parameters))
    new = np.broadcast_to(index < staged_writes(parameters), blocks.shape).astype(np.int64)
    staged = stage_rows(rows, blocks - new, new, generator)
    return single_step_workload(
        parameters, parameters.dummy_requests, rows, lengths - counts, counts, staged
    )


def staged_writes(parameters: UniformParameters) -> int:
    """Return the number of rows written in the step."""
    if parameters.staged_writes is None:
        return min(parameters.requests, DEFAULT_STAGED_WRITES)
    return parameters.staged_writes


def validate_uniform(parameters: UniformParameters) -> None:
    """Refuse parameters that do not go together, without building anything.

    Raises:
        UsageError: naming parameter, value and limit.
    """
    requests, tokens = parameters.requests, parameters.tokens
    if requests > parameters.max_num_reqs:
        raise UsageError(
            f"'requests' is {requests}; expected at most 'max_num_reqs', {parameters.max_num_reqs}"
        )
    if tokens > parameters.max_num_batched_tokens:
        raise UsageError(
            f"'tokens' is {tokens}; expected at most 'max_num_batched_tokens', "
            f"{parameters.max_num_batched_tokens}"
        )
    if tokens < requests:
        raise UsageError(
            f"'tokens' is {tokens}; expected at least 'requests', {requests}: one token each"
        )
    most = -(-tokens // requests)
    if most > parameters.max_model_len:
        raise UsageError(
            f"'tokens' is {tokens}, which is {most} for one of {requests} requests; expected at "
            f"most 'max_model_len' for each, {parameters.max_model_len}"
        )
    if staged_writes(parameters) > requests:
        raise UsageError(
            f"'staged_writes' is {parameters.staged_writes}; expected at most 'requests', "
            f"{requests}: a row is written once"
        )
    validate_dummy_requests(parameters, parameters.dummy_requests, requests, tokens)
