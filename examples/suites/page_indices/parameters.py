"""The parameters of the workloads, which are the keys of a case in a config."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from bt_bench.errors import UsageError
from bt_bench.protocol import WorkloadParameters

from .workload import Int32Array, PageWorkload, Step, features_of, random_page_ids

MAX_REQS = 16_384
MAX_MODEL_LEN = 16_777_216
MAX_PAGE_SIZE = 4096


class PageParameters(WorkloadParameters):
    """What both kinds have: the page table, and requests that decode."""

    requests: int = Field(ge=1, le=MAX_REQS, description="requests that decode")
    steps: int = Field(default=8, ge=1, le=1024, description="consecutive steps")
    page_size: int = Field(default=16, ge=1, le=MAX_PAGE_SIZE, description="tokens of a page")
    mean_length: int = Field(
        default=1024,
        ge=1,
        le=MAX_MODEL_LEN,
        description="mean of the exponential distribution that lengths are drawn from, in tokens",
    )
    min_length: int = Field(
        default=1, ge=1, le=MAX_MODEL_LEN, description="shorter ones are this long, in tokens"
    )
    max_length: int | None = Field(
        default=None,
        ge=1,
        le=MAX_MODEL_LEN,
        description="longer ones are this long, in tokens; default: what max_model_len allows",
    )
    max_num_reqs: int = Field(default=1024, ge=1, le=MAX_REQS, description="rows of the page table")
    max_model_len: int = Field(
        default=8192, ge=1, le=MAX_MODEL_LEN, description="tokens of a row of the page table"
    )
    seed: int = Field(default=0, ge=0, description="seed of lengths, rows and page ids")

    @property
    def width(self) -> int:
        """Number of pages in a row of the page table."""
        return -(-self.max_model_len // self.page_size)

    @property
    def longest(self) -> int:
        """Most tokens of a decoding request before the first step."""
        return self.max_model_len - self.steps if self.max_length is None else self.max_length

    def num_reqs(self) -> int:
        """Return the number of requests in the batch."""
        return self.requests

    def check(self) -> None:
        """See the base class."""
        if self.num_reqs() > self.max_num_reqs:
            raise UsageError(
                f"'requests' makes a batch of {self.num_reqs()}; expected at most 'max_num_reqs', "
                f"{self.max_num_reqs}"
            )
        if self.longest + self.steps > self.max_model_len:
            raise UsageError(
                f"'max_length' is {self.longest}, and {self.steps} steps add a token each; "
                f"expected at most 'max_model_len' together, {self.max_model_len}"
            )
        if self.longest < self.min_length:
            raise UsageError(
                f"'min_length' is {self.min_length}; expected at most the maximum length before "
                f"the first step, {self.longest}"
            )
        if self.max_num_reqs * self.width >= 2**31:
            raise UsageError(
                f"'max_num_reqs' is {self.max_num_reqs} and a row has {self.width} pages; expected "
                "less than 2**31 pages in all, since indptr is int32"
            )

    @property
    def features(self) -> frozenset[str]:
        """See the base class."""
        return features_of(self.page_size)

    def num_bytes(self) -> int:
        """See the base class: the page table, the three outputs, and the lengths, all int32."""
        return 4 * (2 * self.max_num_reqs * self.width + 3 * self.max_num_reqs + 1)

    def build(self) -> PageWorkload:
        """See the base class."""
        rng = np.random.default_rng(self.seed)
        rows = rng.permutation(self.max_num_reqs)[: self.num_reqs()].astype(np.int32)
        drawn = rng.exponential(self.mean_length, self.requests)
        decoding = np.clip(drawn, self.min_length, self.longest).astype(np.int32)
        before, growth = self._lengths(decoding)
        lengths = np.zeros(self.max_num_reqs, dtype=np.int32)
        lengths[rows] = before
        steps = tuple(
            Step(rows, (before + step * growth).astype(np.int32), rows)
            for step in range(1, self.steps + 1)
        )
        page_table = random_page_ids(rng, self.max_num_reqs, self.width)
        return PageWorkload(self.page_size, page_table, lengths, steps)

    def _lengths(self, decoding: Int32Array) -> tuple[Int32Array, Int32Array]:
        """Return each request's length before the first step, and its tokens per step."""
        return decoding, np.ones_like(decoding)


class DecodeParameters(PageParameters):
    """A batch of requests that decode: each grows by a token in every step."""

    workload: Literal["decode"] = "decode"


class MixedParameters(PageParameters):
    """Requests that decode, and behind them requests whose prompts are prefilled in chunks."""

    workload: Literal["mixed"]
    prefills: int = Field(default=1, ge=1, le=MAX_REQS, description="requests in prefill")
    prefill_tokens: int = Field(
        default=512, ge=1, le=MAX_MODEL_LEN, description="tokens of a chunk, one in each step"
    )

    def num_reqs(self) -> int:
        """See the base class."""
        return self.requests + self.prefills

    def check(self) -> None:
        """See the base class."""
        super().check()
        tokens = self.steps * self.prefill_tokens
        if tokens > self.max_model_len:
            raise UsageError(
                f"'prefill_tokens' is {self.prefill_tokens}, which is {tokens} in {self.steps} "
                f"steps; expected at most 'max_model_len', {self.max_model_len}"
            )

    def _lengths(self, decoding: Int32Array) -> tuple[Int32Array, Int32Array]:
        before = np.concatenate([decoding, np.zeros(self.prefills, dtype=np.int32)])
        growth = np.ones_like(before)
        growth[self.requests :] = self.prefill_tokens
        return before, growth
