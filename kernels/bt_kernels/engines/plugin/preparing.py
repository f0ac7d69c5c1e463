"""The preparation of whole batches by one launch, in the place of two methods of vLLM's runner.

The wrappers of these methods call `BatchPreparer`, which `attaching.attach` gives to tables. Where
ours cannot prepare a batch, vLLM's own method runs, and the reason is counted. The launch makes the
staged writes, too, so the apply that waits for the gather is done then. Its tables and slots are
kept for `prepare_attn` of the same batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import torch

from bt_kernels.batch_inputs.buffers import InputBuffers, RequestTensors
from bt_kernels.batch_inputs.carried import MOST_REQUESTS, CarriedInputs
from bt_kernels.batch_inputs.interface import PreparedBatch
from bt_kernels.batch_inputs.layout import InputLayout
from bt_kernels.engines.batches import BatchInputs
from bt_kernels.engines.plugin import settings
from bt_kernels.engines.plugin.counting import COUNTS
from bt_kernels.engines.plugin.deferring import DeferringTables
from bt_kernels.engines.plugin.messages import describe, warn_once
from bt_kernels.one_launch import OneLaunch

_Method = Callable[..., Any]

RECORDED = "calls are recorded"
SEVERAL = "tables take several launches"
FAILED = "ours has failed"
OTHER_RUNNER = "another runner, or another state of requests"
PARALLEL = "prefill context parallelism"
ADAPTIVE = "adaptive verification"
NO_APPLY = "no apply waits"
REPLACED = "the engine has replaced a tensor"
MANY_REQUESTS = f"more than {MOST_REQUESTS:,} requests"
SIZES = "sizes beyond the buffers"
SHORT_QUERIES = "fewer tokens than logits"
PADDING = "VLLM_MOE_SKIP_PADDING has changed"
CHANGED = "something happened before prepare_attn"

_DTYPES = {
    "input_ids": torch.int32,
    "positions": torch.int64,
    "is_padding": torch.bool,
    "query_start_loc": torch.int32,
    "seq_lens": torch.int32,
    "dcp_local_seq_lens": torch.int32,
    "num_computed_tokens": torch.int32,
    "prefill_len": torch.int32,
    "all_token_ids": torch.int32,
    "last_sampled_tokens": torch.int64,
    "draft_tokens": torch.int64,
    "next_prefill_tokens": torch.int32,
}
_HELD = ("last_sampled_tokens", "draft_tokens", "next_prefill_tokens")
_BEHIND_GPU = ("num_computed_tokens", "all_token_ids")


class UnpreparedError(Exception):
    """A runner's batches cannot be prepared by ours; the message is the reason."""


class LastBatch(NamedTuple):
    """A batch until `prepare_attn` asks for its tables and slots.

    Args:
        batch: vLLM's object.
        prepared: its tensors.
        launches: kernels that had been launched for the tables by then.
    """

    batch: Any
    prepared: PreparedBatch
    launches: int


class BatchPreparer:
    """Prepares the batches of a runner by one launch each.

    Args:
        runner: with a KV cache.
        tables: of ours; its own, or those that shadow mode compares.
        module: the runner's module, with vLLM's `InputBatch` and `envs`.
        apart: write into copies of the runner's buffers, and not into these.

    Raises:
        UnpreparedError: when no batch can be prepared by one launch.
        ValueError: likewise, for a layout that ours refuses.
    """

    def __init__(
        self, runner: Any, tables: DeferringTables, module: Any, *, apart: bool = False
    ) -> None:
        if settings.record_file() is not None:
            raise UnpreparedError(RECORDED)
        variant = tables._variant
        if not isinstance(variant, OneLaunch):
            raise UnpreparedError(SEVERAL)
        self._place, self._waiting = variant.place, tables._waiting
        self._kind, self._envs = module.InputBatch, module.envs
        self._measures = settings.prints_counters()
        self._states, self._given = runner.req_states, runner.input_buffers
        self._bonus = int(runner.model_state.num_new_sampled_tokens_per_step)
        self._prefill_len = self._states.prefill_len.gpu
        requests = RequestTensors(
            **{name: getattr(self._states, name) for name in _HELD},
            **{name: getattr(self._states, name).gpu for name in _BEHIND_GPU},
            prefill_len=self._prefill_len,
        )
        buffers = InputBuffers(*(getattr(self._given, name) for name in names_of(InputBuffers)))
        layout = InputLayout(
            *(len(buffers.seq_lens), len(buffers.input_ids), requests.all_token_ids.shape[1]),
            *(requests.draft_tokens.shape[-1], len(requests.next_prefill_tokens), self._bonus),
            marks_padding=bool(self._envs.VLLM_MOE_SKIP_PADDING),
        )
        _check(layout, requests, buffers, tables.device)
        reason = CarriedInputs.why_not(variant, layout)
        if reason is not None:
            raise UnpreparedError(reason)
        self._tensors = requests
        if apart:
            buffers = InputBuffers(*(getattr(buffers, n).clone() for n in names_of(InputBuffers)))
            tokens = requests.next_prefill_tokens.clone()
            requests = RequestTensors(**(vars(requests) | {"next_prefill_tokens": tokens}))
        self.layout = layout
        self.inputs = BatchInputs(tables, layout, requests, buffers)
        self.inputs.warmup()  # here and not in a step, as that of the tables
        self._last: LastBatch | None = None
        self._has_failed = False

    # Called by the wrappers

    def prepare_inputs(
        self,
        method: _Method,
        runner: Any,
        scheduler_output: Any,
        batch_req_state: Any,
        batch_desc: Any,
        num_active_loras: int,
    ) -> Any:
        """Return vLLM's `InputBatch` of a step, filled by ours or by vLLM's method."""
        self._last = None
        began = perf_counter_ns() if self._measures else 0
        step = scheduler_output, batch_req_state, batch_desc, num_active_loras
        try:
            given = self.arguments(runner, *step[:3])
            if isinstance(given, str):
                COUNTS.fallbacks[given] += 1
            else:
                prepared = self.prepare(given)
                batch = self.batch_of(runner, prepared, given, *step)
                self._last = LastBatch(batch, prepared, self._place.launches)
                if began:
                    self._waiting.spent_ns += perf_counter_ns() - began
                return batch
        except Exception as error:
            self._fail(error)
        return method(runner, *step)

    def prepare_attn(self, method: _Method, runner: Any, input_batch: Any) -> Any:
        """Return the tables and slots of the batch that was prepared last, or vLLM's method's."""
        last, self._last = self._last, None
        if last is not None:
            prepared = last.prepared
            if (
                last.batch is input_batch
                and last.launches == self._place.launches
                and not self._waiting.waits
                and input_batch.idx_mapping is prepared.idx_mapping
                and input_batch.query_start_loc is prepared.query_start_loc
                and input_batch.positions is prepared.positions
                and input_batch.num_reqs_after_padding == len(prepared.seq_lens)
                and input_batch.num_tokens_after_padding == len(prepared.positions)
                and runner.pcp_manager is None
            ):
                return prepared.block_tables, prepared.slot_mappings
            COUNTS.fallbacks[CHANGED] += 1
        return method(runner, input_batch)

    # The parts of a step

    def arguments(
        self, runner: Any, scheduler_output: Any, state: Any, descriptor: Any
    ) -> tuple[Any, ...] | str:
        """Return the arguments of `prepare`, or why ours cannot prepare this batch."""
        reason = self._why_not(runner)
        if reason is not None:
            return reason
        num_reqs, num_tokens = len(state.req_ids), state.num_tokens
        padded_reqs = descriptor.num_reqs or num_reqs
        padded_tokens = max(num_tokens, descriptor.num_tokens)
        layout = self.layout
        if num_reqs > MOST_REQUESTS:
            return MANY_REQUESTS
        if not 0 < num_reqs <= padded_reqs <= layout.max_num_reqs or not (
            num_tokens > 0 and padded_tokens <= layout.max_num_tokens
        ):
            return SIZES
        drafts = None
        if scheduler_output.scheduled_spec_decode_tokens or self._bonus != 1:
            drafts = state.num_draft_tokens_np
            if drafts is None:
                drafts = np.zeros(num_reqs, dtype=np.int32)
            if (state.num_scheduled_tokens < drafts + self._bonus).any():
                return SHORT_QUERIES  # an error, which vLLM's method raises
        if layout.marks_padding != self._envs.VLLM_MOE_SKIP_PADDING:
            return PADDING
        prefill_len = self._states.prefill_len.gpu
        if prefill_len is not self._prefill_len:
            self.inputs.use_prefill_len(prefill_len)
            self._prefill_len = prefill_len
        return (
            *(state.idx_mapping_np, state.num_scheduled_tokens, state.prefill_len_np),
            *(state.has_prefill, drafts, padded_reqs, padded_tokens),
        )

    def _why_not(self, runner: Any) -> str | None:
        """Return why ours cannot prepare a batch now, whichever it is; `None` if it can."""
        if self._has_failed:
            return FAILED
        states, tensors, waiting = self._states, self._tensors, self._waiting
        if runner.req_states is not states or runner.input_buffers is not self._given:
            return OTHER_RUNNER
        if runner.pcp_manager is not None:
            return PARALLEL
        if runner.adaptive_verification is not None:
            return ADAPTIVE
        # What was staged after an apply that is done belongs to the next one.
        if not waiting.applies or not waiting.in_step or waiting.gather is not None:
            return NO_APPLY
        if (
            states.num_computed_tokens.gpu is not tensors.num_computed_tokens
            or states.all_token_ids.gpu is not tensors.all_token_ids
            or states.last_sampled_tokens is not tensors.last_sampled_tokens
            or states.draft_tokens is not tensors.draft_tokens
            or states.next_prefill_tokens is not tensors.next_prefill_tokens
        ):
            return REPLACED
        return None

    def prepare(self, given: tuple[Any, ...]) -> PreparedBatch:
        """Launch a step; the apply that waited is done then."""
        prepared = self.inputs.prepare(*given)
        self._waiting.applies = False
        COUNTS.prepared += 1
        COUNTS.fused += 1
        COUNTS.calls["prepare"] += 1
        if self.inputs.fallbacks:
            COUNTS.fallbacks.update(self.inputs.fallbacks)
            self.inputs.fallbacks.clear()
        return prepared

    def batch_of(
        self,
        runner: Any,
        prepared: PreparedBatch,
        given: tuple[Any, ...],
        scheduler_output: Any,
        state: Any,
        descriptor: Any,
        num_active_loras: int | None,
    ) -> Any:
        """Return vLLM's `InputBatch` of a step that was launched.

        Without a number of adapters, two fields that follow from its tensors are left out: shadow
        mode must not index with rows that may be wrong, nor write to memory of the engine.
        """
        drafts, padded_reqs, padded_tokens = given[4:]
        num_reqs, lengths = len(state.req_ids), state.num_scheduled_tokens
        fast_prefill = None
        if runner.fast_prefill is not None and num_active_loras is not None:
            fast_prefill = runner.fast_prefill.prepare(
                prepared.logits_indices,
                num_reqs,
                prepared.cu_num_logits_np,
                state.has_prefill,
                descriptor,
                num_active_loras=num_active_loras,
            )
        computed = self._states.num_computed_tokens_np[state.idx_mapping_np]
        most = np.zeros(padded_reqs, dtype=np.int32)
        np.add(computed, lengths, out=most[:num_reqs])
        prompt_lens = None
        if runner.model_config.rswa_window is not None and num_active_loras is not None:
            prompt_lens = self._states.prompt_len.gpu[prepared.idx_mapping]
        return self._kind(
            req_ids=state.req_ids,
            num_reqs=num_reqs,
            num_reqs_after_padding=padded_reqs,
            idx_mapping=prepared.idx_mapping,
            idx_mapping_np=state.idx_mapping_np,
            expanded_idx_mapping=prepared.expanded_idx_mapping,
            expanded_local_pos=prepared.expanded_local_pos,
            num_scheduled_tokens=lengths,
            num_tokens=state.num_tokens,
            num_tokens_after_padding=padded_tokens,
            num_draft_tokens=prepared.num_draft_tokens,
            num_draft_tokens_per_req=drafts,
            query_start_loc=prepared.query_start_loc,
            query_start_loc_np=prepared.query_start_loc_np,
            seq_lens=prepared.seq_lens,
            seq_lens_cpu_upper_bound=torch.from_numpy(most),
            dcp_local_seq_lens=None,
            num_computed_tokens_np=computed,
            prefill_len_np=state.prefill_len_np,
            num_computed_prefill_tokens_np=state.num_computed_prefill_tokens_np,
            is_prefilling_np=state.is_prefilling_np,
            has_prefill=state.has_prefill,
            decode_graph_eligible=state.decode_graph_eligible,
            input_ids=prepared.input_ids,
            positions=prepared.positions,
            is_padding=prepared.is_padding,
            logits_indices=prepared.logits_indices,
            cu_num_logits=prepared.cu_num_logits,
            cu_num_logits_np=prepared.cu_num_logits_np,
            has_structured_output_reqs=scheduler_output.has_structured_output_requests,
            prompt_lens=prompt_lens,
            max_seq_len_np=state.max_seq_len_np,
            fast_prefill=fast_prefill,
            prefill_runs_as_decode_np=state.prefill_runs_as_decode_np,
        )

    def _fail(self, error: Exception) -> None:
        """Prepare no batch any more; vLLM's method repeats a step that was launched."""
        self._has_failed = True
        COUNTS.failures += 1
        COUNTS.fallbacks[FAILED] += 1
        warn_once(
            f"a batch was not prepared ({describe(error)}). The engine goes on with its own "
            "prepare_inputs"
        )


def names_of(kind: type[Any]) -> list[str]:
    """Return the names of the fields of a dataclass."""
    return [each.name for each in fields(kind)]


def _check(
    layout: InputLayout, requests: RequestTensors, buffers: InputBuffers, device: torch.device
) -> None:
    """Check the tensors of an engine.

    Raises:
        UnpreparedError: naming the first one that is not as ours needs it.
    """
    reqs, tokens = layout.max_num_reqs, layout.max_num_tokens
    shapes = {
        "input_ids": (tokens,),
        "positions": (tokens,),
        "is_padding": (tokens,),
        "query_start_loc": (reqs + 1,),
        "seq_lens": (reqs,),
        "dcp_local_seq_lens": (reqs,),
        "num_computed_tokens": (reqs,),
        "prefill_len": (reqs,),
        "all_token_ids": (reqs, layout.max_model_len),
        "last_sampled_tokens": (reqs, 1),
        "draft_tokens": (reqs, layout.num_speculative_steps),
        "next_prefill_tokens": (layout.num_lookahead, reqs),
    }
    for name, tensor in {**vars(buffers), **vars(requests)}.items():
        found = tuple(tensor.shape), tensor.dtype, tensor.device.type
        expected = shapes[name], _DTYPES[name], device.type
        if found != expected:
            raise UnpreparedError(f"{name} is {found}; expected {expected}")
        if tensor.numel() and tensor.stride(-1) != 1 and tensor.shape[-1] != 1:
            raise UnpreparedError(
                f"{name} has stride {tensor.stride()}; expected elements adjacent"
            )
