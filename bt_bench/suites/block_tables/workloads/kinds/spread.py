"""One step whose tokens are spread over the requests in a chosen way; it may be empty.

Lengths rise evenly with the batch index. The first tokens go to the requests, one each. The
remaining tokens are spread evenly, go to the request in the middle of the batch, or follow a power
law: the k-th largest share is proportional to 1 / k, and its request is random.

Rows hold all their blocks before the step except the ones that it writes, whichever blocks its
tokens begin: the writes do not depend on the spread.
"""

from __future__ import annotations

from typing import Annotated, Literal

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
    MAX_MODEL_LEN,
    MAX_REQS,
    MAX_TOKENS,
    DummyRequests,
)
from bt_bench.suites.block_tables.workloads.steps import Int64Array
from bt_bench.suites.block_tables.workloads.workload import Workload

FEW_ROWS = 8
LONG_ROWS = 2


class SpreadParameters(WorkloadParameters):
    """One step whose tokens are spread over the requests in a chosen way; it may be empty.

    Request i has length `max((i + 1) * longest // R, its tokens)`, the blocks for it, and its
    last positions in the step. Requests beyond the number of tokens have none in the step.
    """

    workload: Literal["spread"]
    requests: int = Field(ge=0, le=MAX_REQS, description="R; 0: an empty batch")
    tokens: int = Field(ge=0, le=MAX_TOKENS, description="T; below R some requests have none")
    spread: Literal["even", "one", "power_law"] = Field(
        default="even", description="where the tokens go that are left over after one each"
    )
    longest: int | None = Field(
        default=None,
        ge=1,
        le=MAX_MODEL_LEN,
        description="length of the last request; default: max_model_len",
    )
    writes: Literal["none", "few", "many", "long"] | Annotated[int, Field(ge=0, le=MAX_REQS)] = (
        Field(
            default="few",
            description=f"rows written: few, the first {FEW_ROWS}; many, all; long, the last "
            f"{LONG_ROWS}, all of whose blocks are new; or how many of the first rows",
        )
    )
    written_ids: int = Field(
        default=1, ge=1, le=MAX_MODEL_LEN, description="block ids in each written row and group"
    )
    dummy_requests: DummyRequests = 0
    mapping: Literal["identity", "shuffled"] = "shuffled"

    def check(self) -> None:
        """See the base class."""
        requests, tokens = self.requests, self.tokens
        validate_counts(self, requests, tokens)
        if tokens and not requests:
            raise UsageError(f"'tokens' is {tokens} and 'requests' is 0; expected no tokens either")
        if _longest(self) > self.max_model_len:
            raise UsageError(
                f"'longest' is {self.longest}; expected at most 'max_model_len', "
                f"{self.max_model_len}"
            )
        most_tokens = int(token_counts(self).max(initial=0))
        if most_tokens > self.max_model_len:
            raise UsageError(
                f"'tokens' is {tokens}, and 'spread' {self.spread!r} gives {most_tokens} to "
                f"one of {requests} requests; expected at most 'max_model_len' for each, "
                f"{self.max_model_len}"
            )
        _validate_writes(self)
        validate_dummy_requests(self, self.dummy_requests, requests, tokens)

    def build(self) -> Workload:
        """See the base class."""
        generator = np.random.default_rng(self.seed)
        counts = token_counts(self)
        requests = self.requests
        rising = (np.arange(requests, dtype=np.int64) + 1) * _longest(self) // max(requests, 1)
        lengths = np.maximum(rising, counts)
        rows = choose_rows(requests, self, self.mapping == "shuffled", generator)
        blocks = blocks_for(lengths, self.tokens_per_column())
        new = _written(self, blocks)
        staged = stage_rows(rows, blocks - new, new, generator)
        return single_step_workload(
            self, self.dummy_requests, rows, lengths - counts, counts, staged
        )


def token_counts(parameters: SpreadParameters) -> Int64Array:
    """Return the tokens of each request in the step, `[R]`; their sum is T unless R is 0."""
    requests = parameters.requests
    index = np.arange(requests, dtype=np.int64)
    counts: Int64Array = (index < parameters.tokens).astype(np.int64)
    left = parameters.tokens - int(counts.sum())
    if not requests or not left:
        return counts
    if parameters.spread == "even":
        return counts + left // requests + (index < left % requests)
    if parameters.spread == "one":
        counts[requests // 2] += left
        return counts
    weights = 1 / (index + 1.0)
    ends = np.rint(np.cumsum(weights) / weights.sum() * left).astype(np.int64)
    # A generator of its own leaves the block ids the same as with the other spreads.
    places = np.random.default_rng(parameters.seed).permutation(requests)
    counts[places] += np.diff(ends, prepend=0)
    return counts


def _written(parameters: SpreadParameters, blocks: Int64Array) -> Int64Array:
    """Return the blocks that each row receives in the step, out of its `blocks`; `[G, R]`."""
    requests, writes = parameters.requests, parameters.writes
    index = np.arange(requests)
    if writes == "long":
        return np.where(index >= requests - LONG_ROWS, blocks, 0)
    words = {"none": 0, "few": FEW_ROWS, "many": requests}
    rows = words[writes] if isinstance(writes, str) else writes
    return np.where(index < rows, np.minimum(blocks, parameters.written_ids), 0)


def _longest(parameters: SpreadParameters) -> int:
    return parameters.max_model_len if parameters.longest is None else parameters.longest


def _validate_writes(parameters: SpreadParameters) -> None:
    writes = parameters.writes
    if isinstance(writes, int) and writes > parameters.requests:
        raise UsageError(
            f"'writes' is {writes}; expected at most 'requests', {parameters.requests}: a row is "
            "written once"
        )
    if writes in ("none", "long") and parameters.written_ids != 1:
        raise UsageError(
            f"'written_ids' is {parameters.written_ids} beside 'writes' {writes!r}, which sets how "
            "many ids are written; remove one of the two"
        )
