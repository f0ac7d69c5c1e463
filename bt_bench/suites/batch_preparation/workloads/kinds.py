"""The kinds of workload: as for block tables, with drafts and prompts."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

from pydantic import Field

from bt_bench.base.errors import UsageError
from bt_bench.suites.batch_preparation.workloads.derive import longest_sequence, with_inputs
from bt_bench.suites.batch_preparation.workloads.workload import InputWorkload
from bt_bench.suites.block_tables.workloads import (
    BatchParameters as TableBatchParameters,
)
from bt_bench.suites.block_tables.workloads import (
    Description,
    Workload,
    WorkloadParameters,
)
from bt_bench.suites.block_tables.workloads import (
    TraceParameters as TableTraceParameters,
)
from bt_bench.suites.block_tables.workloads.kinds.recorded import (
    RecordedParameters as TableRecordedParameters,
)
from bt_kernels.batch_inputs.layout import DRAFTS, LOOKAHEAD, InputLayout


class InputParameters(WorkloadParameters):
    """Parameters that every kind has beside the ones for block tables."""

    drafts: int = Field(default=0, ge=0, le=1023, description="draft tokens of each decode")
    prompt_tails: int = Field(
        default=0,
        ge=0,
        description="decodes of each step that are in the last tokens of their prompt; needs "
        "'drafts'",
    )
    lookahead: int = Field(
        default=1, ge=1, le=1024, description="prompt tokens kept for multi-token prediction"
    )
    marks_padding: bool = Field(default=True, description="whether steps write `is_padding`")

    def check(self) -> None:
        """See the base class."""
        super().check()
        if self.custom_outputs:
            raise UsageError("'custom_outputs' is true; expected false: batches have one output")
        if getattr(self, "dummy_requests", 0):
            raise UsageError(
                f"'dummy_requests' is {getattr(self, 'dummy_requests', 0)}; expected 0, since "
                "inputs are prepared for requests alone"
            )
        if self.idx_mapping_dtype != "int64":
            raise UsageError(
                f"'idx_mapping_dtype' is {self.idx_mapping_dtype!r}; expected 'int64', which the "
                "preparation makes"
            )
        if self.prompt_tails and not self.drafts:
            raise UsageError(
                f"'prompt_tails' is {self.prompt_tails} and 'drafts' is 0; expected drafts, since "
                "a prompt's last tokens without drafts are a prefill"
            )

    @property
    def features(self) -> frozenset[str]:
        """See the base class."""
        found = set(super().features)
        found |= {DRAFTS} if self.drafts else set()
        return frozenset(found | ({LOOKAHEAD} if self.lookahead > 1 else set()))

    def num_bytes(self) -> int:
        """See the base class: tables, slots and inputs of one variant."""
        per_row = 4 + 4 + 4 + 4 + 8 + 8 * self.drafts + 4 * self.lookahead
        per_token = 4 + 8 + 1
        inputs = self.max_num_reqs * per_row + self.max_num_batched_tokens * per_token
        return super().num_bytes() + inputs

    @abstractmethod
    def tables(self) -> Workload:
        """Build the workload of block tables that the batches are derived from."""

    def build(self) -> Any:
        """See the base class."""
        tables = self.tables()
        layout = InputLayout(
            max_num_reqs=self.max_num_reqs,
            max_num_tokens=self.max_num_batched_tokens,
            max_model_len=max(self.max_model_len, longest_sequence(tables)),
            num_speculative_steps=self.drafts,
            num_lookahead=self.lookahead,
            marks_padding=self.marks_padding,
        )
        return with_inputs(tables, layout, self.drafts, self.prompt_tails, self.seed)

    def describe(self, workload: Any = None) -> Description:
        """See the base class: the tables' part of the workload."""
        return super().describe(self.tables())


class BatchParameters(InputParameters, TableBatchParameters):
    """One step of a serving engine: decodes with their drafts, prefill chunks, or a mixture."""

    workload: Literal["batch"] = "batch"

    def check(self) -> None:
        """See the base class."""
        super().check()
        if self.tokens_per_request != 1 + self.drafts:
            raise UsageError(
                f"'tokens_per_request' is {self.tokens_per_request} and 'drafts' is {self.drafts}; "
                f"expected 'tokens_per_request' {1 + self.drafts}, one more than the drafts"
            )
        if self.prefills and self.prefill_tokens == 1 + self.drafts:
            raise UsageError(
                f"'prefill_tokens' is {self.prefill_tokens}; expected another number than "
                "'tokens_per_request', since a request of so many tokens counts as a decode"
            )
        if self.prompt_tails > self.requests:
            raise UsageError(
                f"'prompt_tails' is {self.prompt_tails}; expected at most 'requests', "
                f"{self.requests}"
            )

    def tables(self) -> Workload:
        """See the base class."""
        return TableBatchParameters.build(self)


class TraceParameters(InputParameters, TableTraceParameters):
    """Steps of a continuous-batching scheduler that serves the requests of a trace."""

    workload: Literal["trace"]

    def check(self) -> None:
        """See the base class."""
        super().check()
        if self.drafts:
            raise UsageError(
                f"'drafts' is {self.drafts}; expected 0, since the scheduler does not speculate"
            )

    def tables(self) -> Workload:
        """See the base class."""
        return TableTraceParameters.build(self)


class RecordedParameters(InputParameters, TableRecordedParameters):
    """Batches of a running engine, as the vLLM plugin has recorded them."""

    workload: Literal["recorded"]

    def tables(self) -> Workload:
        """See the base class."""
        return TableRecordedParameters.build(self)


KINDS = (BatchParameters, TraceParameters, RecordedParameters)

__all__ = ["KINDS", "BatchParameters", "InputWorkload", "RecordedParameters", "TraceParameters"]
