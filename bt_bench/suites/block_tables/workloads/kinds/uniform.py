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
    validate_counts,
    validate_dummy_requests,
)
from bt_bench.suites.block_tables.workloads.kind import WorkloadParameters
from bt_bench.suites.block_tables.workloads.parameters import (
    MAX_REQS,
    MAX_TOKENS,
    DummyRequests,
)
from bt_bench.suites.block_tables.workloads.workload import Workload

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
    dummy_requests: DummyRequests = 0
    mapping: Literal["identity", "shuffled"] = "identity"

    def check(self) -> None:
        """See the base class."""
        requests, tokens = self.requests, self.tokens
        validate_counts(self, requests, tokens)
        if tokens < requests:
            raise UsageError(
                f"'tokens' is {tokens}; expected at least 'requests', {requests}: one token each"
            )
        most = -(-tokens // requests)
        if most > self.max_model_len:
            raise UsageError(
                f"'tokens' is {tokens}, which is {most} for one of {requests} requests; expected "
                f"at most 'max_model_len' for each, {self.max_model_len}"
            )
        if _rows_written(self) > requests:
            raise UsageError(
                f"'staged_writes' is {self.staged_writes}; expected at most 'requests', "
                f"{requests}: a row is written once"
            )
        validate_dummy_requests(self, self.dummy_requests, requests, tokens)

    def build(self) -> Workload:
        """See the base class.

        A request is never shorter than its tokens in the step, even if `tokens % requests` gives it
        one more. A written row of a single block holds nothing before the step.
        """
        generator = np.random.default_rng(self.seed)
        requests = self.requests
        index = np.arange(requests, dtype=np.int64)
        counts = self.tokens // requests + (index < self.tokens % requests)
        lengths = np.maximum((index + 1) * (self.max_model_len // requests), counts)
        rows = choose_rows(requests, self, self.mapping == "shuffled", generator)
        blocks = blocks_for(lengths, self.tokens_per_column())
        new = np.broadcast_to(index < _rows_written(self), blocks.shape).astype(np.int64)
        staged = stage_rows(rows, blocks - new, new, generator)
        return single_step_workload(
            self, self.dummy_requests, rows, lengths - counts, counts, staged
        )


def _rows_written(parameters: UniformParameters) -> int:
    """Return the number of rows written in the step."""
    if parameters.staged_writes is None:
        return min(parameters.requests, DEFAULT_STAGED_WRITES)
    return parameters.staged_writes
