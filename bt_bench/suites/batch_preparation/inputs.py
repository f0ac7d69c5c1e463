"""The inputs of a workload's steps on their device, and the state of requests that they give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from bt_bench.suites.batch_preparation.workloads.workload import (
    TOKEN_SHIFT,
    InputStep,
    InputWorkload,
    Int32Array,
    Int64Array,
)
from bt_bench.suites.block_tables.inputs import BatchedAppends, copied
from bt_bench.suites.block_tables.vllm.loading import device_view
from bt_bench.suites.block_tables.workloads import Append
from bt_kernels.batch_inputs.buffers import RequestTensors
from bt_kernels.batch_inputs.layout import InputLayout


@dataclass(frozen=True)
class StepInputs:
    """One step: the host's decisions, and the state of the requests on the device.

    Args:
        appends: staged before the step.
        batched: the same writes as lists, for `append_many`.
        rows, query_lens, prefill_lens, num_drafts: as in `InputStep`.
        has_prefill: whether a request is in prefill.
        num_reqs_padded: requests that the engine reads.
        num_tokens_padded: tokens that it reads.
        num_computed_tokens: `[max_num_reqs]` int32, on the device.
        prefill_len: `[max_num_reqs]` int32, likewise.
        last_sampled_tokens: `[max_num_reqs, 1]` int64, likewise.
        draft_tokens: `[max_num_reqs, num_speculative_steps]` int64, likewise.
    """

    appends: tuple[Append, ...]
    batched: BatchedAppends
    rows: Int64Array
    query_lens: Int32Array
    prefill_lens: Int32Array
    num_drafts: Int32Array | None
    has_prefill: bool
    num_reqs_padded: int
    num_tokens_padded: int
    num_computed_tokens: torch.Tensor
    prefill_len: torch.Tensor
    last_sampled_tokens: torch.Tensor
    draft_tokens: torch.Tensor

    def arguments(self) -> tuple[object, ...]:
        """Return the arguments of `prepare_inputs` and `prepare`."""
        return (
            self.rows,
            self.query_lens,
            self.prefill_lens,
            self.has_prefill,
            self.num_drafts,
            self.num_reqs_padded,
            self.num_tokens_padded,
        )


def inputs_on(device: torch.device, workload: InputWorkload) -> list[StepInputs]:
    """Return the steps of a workload on a device; arms of one case share them.

    Rows that are in no batch keep the state that they had in an earlier one, or 0.
    """
    rows = workload.layout.max_num_reqs
    computed = np.zeros(rows, dtype=np.int32)
    prefill_len = np.zeros(rows, dtype=np.int32)
    found = []
    for number, step in enumerate(workload.steps):
        computed[step.rows] = step.computed
        prefill_len[step.rows] = step.prefill_lens
        found.append(_step_on(device, workload, number, step, computed, prefill_len))
    return found


def _step_on(
    device: torch.device,
    workload: InputWorkload,
    number: int,
    step: InputStep,
    computed: Int32Array,
    prefill_len: Int32Array,
) -> StepInputs:
    layout = workload.layout
    rows, columns = layout.max_num_reqs, layout.num_speculative_steps
    # From the end: other tokens than those of the sequences, and others in each step.
    last = len(workload.tokens) - number
    sampled = workload.tokens[last - rows : last]
    drafts = workload.tokens[last - rows * (1 + columns) : last - rows]
    appends = tuple(map(copied, step.appends))
    return StepInputs(
        appends,
        BatchedAppends.of(appends),
        step.rows.copy(),
        step.query_lens.copy(),
        step.prefill_lens.copy(),
        None if step.num_drafts is None else step.num_drafts.copy(),
        step.has_prefill,
        step.num_reqs_padded,
        step.num_tokens_padded,
        torch.tensor(computed, device=device),
        torch.tensor(prefill_len, device=device),
        torch.tensor(sampled, device=device).reshape(rows, 1),
        torch.tensor(drafts, device=device).reshape(rows, columns),
    )


@dataclass(frozen=True)
class Requests:
    """The state of the requests of one instance.

    Args:
        tensors: as a variant takes them.
        sequences: `[n]` int32: the memory of `tensors.all_token_ids`, on the host, whose rows
            overlap. An engine has memory for every token of every row, which would be gigabytes.
    """

    tensors: RequestTensors
    sequences: torch.Tensor

    @classmethod
    def of(cls, layout: InputLayout, tokens: Int64Array, device: torch.device) -> Requests:
        """Make the state from before the first step; sequences are in pinned memory for a GPU."""
        rows, length = layout.max_num_reqs, layout.max_model_len
        size = length + (rows - 1) * TOKEN_SHIFT
        sequences = torch.empty(size, dtype=torch.int32, pin_memory=device.type == "cuda")
        sequences.copy_(torch.from_numpy(tokens[:size]))
        view = device_view(sequences) if device.type == "cuda" else sequences

        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        tensors = RequestTensors(
            num_computed_tokens=zeros(rows),
            prefill_len=zeros(rows),
            all_token_ids=view.as_strided((rows, length), (TOKEN_SHIFT, 1)),
            last_sampled_tokens=zeros(rows, 1, dtype=torch.int64),
            draft_tokens=zeros(rows, layout.num_speculative_steps, dtype=torch.int64),
            next_prefill_tokens=zeros(layout.num_lookahead, rows),
        )
        return cls(tensors, sequences)

    def take(self, step: StepInputs) -> None:
        """Take over the state of a step, as an engine's kernels write it between steps."""
        for name, tensor in self.by_step().items():
            tensor.copy_(getattr(step, name), non_blocking=True)

    def forget(self) -> None:
        """Return to the state before the first step."""
        for tensor in self.by_step().values():
            tensor.zero_()

    def by_step(self) -> dict[str, torch.Tensor]:
        """Return the tensors that a step gives, by name."""
        return {
            "num_computed_tokens": self.tensors.num_computed_tokens,
            "prefill_len": self.tensors.prefill_len,
            "last_sampled_tokens": self.tensors.last_sampled_tokens,
            "draft_tokens": self.tensors.draft_tokens,
        }
