"""The tensors of an engine that a batch's preparation reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bt_kernels.batch_inputs.layout import InputLayout


@dataclass(frozen=True)
class InputBuffers:
    """Persistent outputs, under the names of vLLM's `InputBuffers`; captured graphs read them.

    Args:
        input_ids: `[max_num_tokens]` int32.
        positions: `[max_num_tokens]` int64.
        is_padding: `[max_num_tokens]` bool.
        query_start_loc: `[max_num_reqs + 1]` int32.
        seq_lens: `[max_num_reqs]` int32.
        dcp_local_seq_lens: `[max_num_reqs]` int32. No operation here writes it.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    is_padding: torch.Tensor
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    dcp_local_seq_lens: torch.Tensor

    @classmethod
    def zeros(cls, layout: InputLayout, device: torch.device | str) -> InputBuffers:
        """Allocate buffers of a layout, all zero."""
        tokens, reqs = layout.max_num_tokens, layout.max_num_reqs

        def zeros(size: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        return cls(
            zeros(tokens, torch.int32),
            zeros(tokens, torch.int64),
            zeros(tokens, torch.bool),
            zeros(reqs + 1, torch.int32),
            zeros(reqs, torch.int32),
            zeros(reqs, torch.int32),
        )


@dataclass(frozen=True)
class RequestTensors:
    """The state of all requests by request row, under the names of vLLM's `RequestState`.

    The engine owns them and writes them on the device between steps, in stream order. A step only
    reads them, with the exception of `next_prefill_tokens`. Addresses, shapes and strides stay the
    same for the life of the object that is built with them, but for the address of `prefill_len`:
    an engine that writes it anew in other memory calls `use_prefill_len` of that object.

    Args:
        num_computed_tokens: `[max_num_reqs]` int32, tokens computed before the step.
        prefill_len: `[max_num_reqs]` int32, tokens that a request came with.
        all_token_ids: `[max_num_reqs, max_model_len]` int32, elements of a row adjacent. Often a
            device view of pinned memory, which kernels read and the host cannot copy cheaply.
            The engine may have written columns from `prefill_len` on, too.
        last_sampled_tokens: `[max_num_reqs]` or `[max_num_reqs, 1]` int64, contiguous.
        draft_tokens: `[max_num_reqs, num_speculative_steps]` int64, elements of a row adjacent.
        next_prefill_tokens: `[num_lookahead, max_num_reqs]` int32, elements of a row adjacent;
            written.
    """

    num_computed_tokens: torch.Tensor
    prefill_len: torch.Tensor
    all_token_ids: torch.Tensor
    last_sampled_tokens: torch.Tensor
    draft_tokens: torch.Tensor
    next_prefill_tokens: torch.Tensor

    @classmethod
    def zeros(cls, layout: InputLayout, device: torch.device | str) -> RequestTensors:
        """Allocate tensors of a layout on a device, all zero."""
        rows = layout.max_num_reqs

        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return cls(
            zeros(rows),
            zeros(rows),
            zeros(rows, layout.max_model_len),
            zeros(rows, 1, dtype=torch.int64),
            zeros(rows, layout.num_speculative_steps, dtype=torch.int64),
            zeros(layout.num_lookahead, rows),
        )
