"""One step of a serving engine: decodes, speculative tokens, prefill chunks, or a mixture.

Decodes come first in the batch, then prefills, as in vLLM. A decoding request has a random number
of earlier tokens, at least `min_length`. A request in prefill has a random number of earlier whole
chunks, of at least `min_length - 1` tokens in all: at the default `min_length` of 1, there may be
none. Blocks that the tokens of the step begin are staged in the step; all earlier ones, in the
setup.

With `staged_writes`, that many decoding rows, randomly chosen, have their length moved to a common
multiple of all block sizes (down, or up where that would be below `min_length`): the step begins a
block in every group. Every other decoding row has its length moved up to the next one at which the
step begins no block in any group. Rows in prefill are written as they come.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.workloads.assemble import (
    blocks_for,
    choose_rows,
    single_step_workload,
    stage_rows,
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

_MOST_MOVES = 10_000


class BatchParameters(WorkloadParameters):
    """One step of a serving engine: decodes, speculative tokens, prefill chunks, or a mixture.

    Each request has a random length. The blocks that its tokens of this step begin are staged in
    the step, as in an engine: about R / block_size rows of a decode batch are written.
    """

    workload: Literal["batch"]
    requests: int = Field(default=0, ge=0, le=MAX_REQS, description="decoding requests")
    tokens_per_request: int = Field(
        default=1, ge=1, le=1024, description="tokens of each decoding request: 1 + speculative"
    )
    prefills: int = Field(default=0, ge=0, le=MAX_REQS, description="requests in prefill")
    prefill_tokens: int = Field(
        default=2048, ge=1, le=MAX_TOKENS, description="chunk of each request in prefill"
    )
    min_length: int = Field(
        default=1, ge=1, le=MAX_MODEL_LEN, description="fewest tokens computed before the step"
    )
    staged_writes: int | None = Field(
        default=None,
        ge=0,
        le=MAX_REQS,
        description="decoding rows moved to a block boundary, which makes exactly so many written",
    )
    dummy_requests: DummyRequests = 0
    mapping: Literal["identity", "shuffled"] = "shuffled"

    def check(self) -> None:
        """See the base class."""
        _validate_counts(self)
        _validate_lengths(self)
        if self.staged_writes is not None:
            _validate_staged_writes(self, self.staged_writes)

    def build(self) -> Workload:
        """See the base class."""
        generator = np.random.default_rng(self.seed)
        starts = np.concatenate((_decode_starts(self, generator), _prefill_starts(self, generator)))
        counts = np.full(len(starts), self.tokens_per_request, dtype=np.int64)
        counts[self.requests :] = self.prefill_tokens
        rows = choose_rows(len(starts), self, self.mapping == "shuffled", generator)
        sizes = self.tokens_per_column()
        held = blocks_for(starts, sizes)
        new = blocks_for(starts + counts, sizes) - held
        staged = stage_rows(rows, held, new, generator)
        return single_step_workload(self, self.dummy_requests, rows, starts, counts, staged)

    def num_prefills(self) -> int:
        """See the base class."""
        return self.prefills


def _decode_starts(parameters: BatchParameters, generator: np.random.Generator) -> Int64Array:
    """Draw the number of earlier tokens of each decoding request."""
    if not parameters.requests:
        return np.empty(0, dtype=np.int64)
    longest = parameters.max_model_len - parameters.tokens_per_request
    starts = generator.integers(
        parameters.min_length, longest, size=parameters.requests, endpoint=True
    )
    if parameters.staged_writes is None:
        return starts
    written = np.zeros(parameters.requests, dtype=np.bool_)
    written[generator.permutation(parameters.requests)[: parameters.staged_writes]] = True
    if parameters.staged_writes:
        multiple = math.lcm(*parameters.tokens_per_column())
        lowest = -(-parameters.min_length // multiple) * multiple
        starts[written] = np.maximum(starts[written] // multiple * multiple, lowest)
    starts[~written] = _off_boundaries(starts[~written], parameters)
    return starts


def _off_boundaries(starts: Int64Array, parameters: BatchParameters) -> Int64Array:
    """Move each start up until its tokens begin no block in any group.

    A start that leaves the range on its way up goes on from `min_length`, once.
    """
    sizes = np.array(parameters.tokens_per_column(), dtype=np.int64)[:, np.newaxis]
    longest = parameters.max_model_len - parameters.tokens_per_request
    starts = starts.copy()
    again = np.zeros(len(starts), dtype=np.bool_)
    for _ in range(_MOST_MOVES):
        boundaries = -(-starts // sizes) * sizes  # [G, R], the first at the start or later
        boundaries[boundaries >= starts + parameters.tokens_per_request] = -1
        crossed = boundaries.max(axis=0)
        starts = np.maximum(starts, crossed + 1)
        if (again & (starts > longest)).any():
            break
        again |= starts > longest
        starts[starts > longest] = parameters.min_length
        if not (crossed >= 0).any():
            return starts
    raise UsageError(
        f"'staged_writes' is {parameters.staged_writes} of {parameters.requests} requests, but "
        f"for the others no length from 'min_length', {parameters.min_length}, to "
        f"'max_model_len', {parameters.max_model_len}, keeps {parameters.tokens_per_request} more "
        f"tokens from beginning a block of {_sizes_text(parameters)}; "
        "raise 'staged_writes' or widen the lengths"
    )


def _prefill_starts(parameters: BatchParameters, generator: np.random.Generator) -> Int64Array:
    """Draw the number of earlier tokens of each request in prefill: whole chunks."""
    if not parameters.prefills:
        return np.empty(0, dtype=np.int64)
    most = parameters.max_model_len // parameters.prefill_tokens - 1
    chunks = generator.integers(
        _fewest_chunks(parameters), most, size=parameters.prefills, endpoint=True
    )
    return chunks * parameters.prefill_tokens


def _fewest_chunks(parameters: BatchParameters) -> int:
    return -(-(parameters.min_length - 1) // parameters.prefill_tokens)


def _sizes_text(parameters: BatchParameters) -> str:
    sizes = ", ".join(map(str, sorted(set(parameters.block_sizes()))))
    ranks = f" on each of {parameters.cp_size} ranks" if parameters.cp_size > 1 else ""
    return f"block size {sizes}{ranks}"


def _validate_counts(parameters: BatchParameters) -> None:
    requests = parameters.requests + parameters.prefills
    if requests == 0:
        raise UsageError(
            "'requests' and 'prefills' are both 0; expected at least one request in the batch"
        )
    if requests > parameters.max_num_reqs:
        raise UsageError(
            f"'requests' and 'prefills' are {parameters.requests} and {parameters.prefills}, "
            f"together {requests}; expected at most 'max_num_reqs', {parameters.max_num_reqs}"
        )
    decode_tokens = parameters.requests * parameters.tokens_per_request
    prefill_tokens = parameters.prefills * parameters.prefill_tokens
    if decode_tokens + prefill_tokens > parameters.max_num_batched_tokens:
        raise UsageError(
            f"the batch has {decode_tokens + prefill_tokens} tokens "
            f"('requests' {parameters.requests} × 'tokens_per_request' "
            f"{parameters.tokens_per_request} + 'prefills' {parameters.prefills} × "
            f"'prefill_tokens' {parameters.prefill_tokens}); expected at most "
            f"'max_num_batched_tokens', {parameters.max_num_batched_tokens}"
        )
    validate_dummy_requests(
        parameters, parameters.dummy_requests, requests, decode_tokens + prefill_tokens
    )


def _validate_lengths(parameters: BatchParameters) -> None:
    limit = f"expected at most 'max_model_len', {parameters.max_model_len}"
    decode_length = parameters.min_length + parameters.tokens_per_request
    if parameters.requests and decode_length > parameters.max_model_len:
        raise UsageError(
            f"'min_length' is {parameters.min_length}, which with 'tokens_per_request' "
            f"{parameters.tokens_per_request} makes a length of {decode_length}; {limit}"
        )
    prefill_length = (_fewest_chunks(parameters) + 1) * parameters.prefill_tokens
    if parameters.prefills and prefill_length > parameters.max_model_len:
        raise UsageError(
            f"'prefill_tokens' is {parameters.prefill_tokens}, which with 'min_length' "
            f"{parameters.min_length} makes a length of {prefill_length} after the step; {limit}"
        )


def _validate_staged_writes(parameters: BatchParameters, staged_writes: int) -> None:
    if staged_writes > parameters.requests:
        raise UsageError(
            f"'staged_writes' is {staged_writes}; expected at most 'requests', "
            f"{parameters.requests}: decoding rows are written"
        )
    sizes = parameters.tokens_per_column()
    multiple = math.lcm(*sizes)
    longest = parameters.max_model_len - parameters.tokens_per_request
    lowest = -(-parameters.min_length // multiple) * multiple
    if staged_writes and lowest > longest:
        raise UsageError(
            f"'staged_writes' is {staged_writes}, which needs a length that is a multiple of "
            f"{multiple} ({_sizes_text(parameters)}) from 'min_length', {parameters.min_length}, "
            f"to 'max_model_len' less 'tokens_per_request', {longest}; there is none"
        )
    smallest = min(sizes)
    if staged_writes < parameters.requests and parameters.tokens_per_request >= smallest:
        raise UsageError(
            f"'staged_writes' is {staged_writes} of {parameters.requests} requests, and "
            f"'tokens_per_request' is {parameters.tokens_per_request}; expected less than the "
            f"tokens of the smallest block, {smallest}, since otherwise every row begins a block"
        )
