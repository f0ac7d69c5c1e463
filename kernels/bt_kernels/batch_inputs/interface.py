"""The interface of every variant: the preparation of a batch, and its results.

The symbols in shapes: R requests in the batch, T tokens in the step, L logits in the step, G groups
of block tables. A step of an engine has three parts: A applies staged writes, B prepares inputs, C
gathers block tables and computes slots. `prepare_inputs` is B, `prepare` all three.

`bt_kernels.batch_inputs.variants.reference` states the semantics plainly in code. They are as in
`prepare_inputs` and `prepare_attn` of vLLM 0.33.0, without adaptive verification and without
prefill context parallelism.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from bt_kernels.batch_inputs.buffers import InputBuffers, RequestTensors
from bt_kernels.batch_inputs.layout import InputLayout
from bt_kernels.interface import JIT, BlockTableOperations
from bt_kernels.layout import TableLayout

PERSISTENT = ("input_ids", "positions", "is_padding", "query_start_loc", "seq_lens")
"""Fields of `PreparedBatch` that are views of a buffer of the same name."""

NEW = (
    "idx_mapping",
    "expanded_idx_mapping",
    "expanded_local_pos",
    "cu_num_logits",
    "logits_indices",
)
"""Fields of `PreparedBatch` that are new in each step."""


class PreparedBatch(NamedTuple):
    """The results of a step.

    Five fields are **new in each step**. They keep their contents as long as a reader holds them,
    over any number of later steps. They may share one allocation, and nobody may write to them.
    They are contiguous, and begin at a multiple of 16 bytes. Their storage cannot be resized. A
    reader on another CUDA stream holds them until it is done; `record_stream` does not.

    The other tensors are **views of persistent buffers**, which begin at the buffer's first element
    in every step. The next step overwrites them.

    Attributes:
        idx_mapping: `[R]` int64, new: the request row of each request.
        expanded_idx_mapping: `[L]` int64, new: the request row of each logit. Without drafts, and
            with one logit a request, it is the object `idx_mapping` itself.
        expanded_local_pos: `[L]` int32, new: number of each logit within its request, from 0.
        cu_num_logits: `[R + 1]` int32, new: first logit of each request; the last is L.
        logits_indices: `[L]` int64, new: the token of each logit. The logits of a request belong to
            the last tokens of its query.
        input_ids: view `[num_tokens_padded]` int32. Written: all tokens of a request in prefill,
            the last sampled token of others, and drafts; see `prepare_inputs`. All other elements
            stay as they were.
        positions: view `[num_tokens_padded]` int64. Elements from T on stay as they were.
        is_padding: view `[num_tokens_padded]` bool: false below T, true from T on. Elements from
            `num_tokens_padded` on stay as they were, and all of them if the layout does not mark
            padding.
        query_start_loc: view `[num_reqs_padded + 1]` int32: first token of each request. The whole
            buffer is written, and is T from element R on.
        seq_lens: view `[num_reqs_padded]` int32: length of each sequence after the step. The whole
            buffer is written, and is 0 from element R on.
        query_start_loc_np: `[num_reqs_padded + 1]` int32 on the host, new: as `query_start_loc`.
        cu_num_logits_np: `[R + 1]` int32 on the host, new: as `cu_num_logits`.
        num_draft_tokens: number of drafts of all requests.
        block_tables: per group, a view `[num_reqs_padded, width]`; empty after `prepare_inputs`.
        slot_mappings: view `[G, num_tokens_padded]` int64; `None` after `prepare_inputs`.
    """

    idx_mapping: torch.Tensor
    expanded_idx_mapping: torch.Tensor
    expanded_local_pos: torch.Tensor
    cu_num_logits: torch.Tensor
    logits_indices: torch.Tensor
    input_ids: torch.Tensor
    positions: torch.Tensor
    is_padding: torch.Tensor
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    query_start_loc_np: npt.NDArray[np.int32]
    cu_num_logits_np: npt.NDArray[np.int32]
    num_draft_tokens: int
    block_tables: tuple[torch.Tensor, ...] = ()
    slot_mappings: torch.Tensor | None = None


class BatchInputOperations(ABC):
    """The preparation of batches, with the tensors that it works on.

    A variant file defines one subclass with the name `Variant`.

    `features` names a variant's features beyond the plain path, from `FEATURES` of
    `bt_kernels.batch_inputs.layout` and of `bt_kernels.layout`. A variant that lacks a feature must
    not be used where it is needed.

    `launch_paths` and `launch_path` are as in `BlockTableOperations`. No method may be captured
    into a CUDA graph: the host's part of each step goes into its launches.

    The device may be late: a step must not wait for it, nor write to pinned memory that the device
    may still have to read. All launches go to the current stream.

    Attributes:
        layout: sizes and flags.
        tables: the block tables; stage a step's writes there.
        requests: the state of the requests, owned by the engine.
        buffers: the persistent outputs.
        validate: on every call, check the contents of arguments, too. It costs host time; when off
            it costs nothing.

    Args:
        table_layout: sizes and options of the block tables; `max_num_reqs` as in `layout`, and
            `max_num_batched_tokens` not below `layout.max_num_tokens`.
        layout: sizes and flags of the inputs.
        requests: the tensors of a layout, as `RequestTensors.zeros` makes them.
        device: the device of all tensors.
        buffers: persistent outputs that exist already, such as an engine's; `None`: new ones.

    Raises:
        ValueError: when the layouts disagree.
    """

    features: frozenset[str] = frozenset()
    launch_path: str = JIT
    launch_paths: tuple[str, ...] = (JIT,)
    capturable: frozenset[str] = frozenset()
    validate: bool = False

    layout: InputLayout
    tables: BlockTableOperations
    requests: RequestTensors
    buffers: InputBuffers

    @abstractmethod
    def __init__(
        self,
        table_layout: TableLayout,
        layout: InputLayout,
        requests: RequestTensors,
        device: torch.device | str,
        buffers: InputBuffers | None = None,
    ) -> None: ...

    def append_block_ids(
        self, req_index: int, new_block_ids: Sequence[Sequence[int]], overwrite: bool
    ) -> None:
        """Stage new block ids of one request row, as `tables.append_block_ids` does."""
        self.tables.append_block_ids(req_index, new_block_ids, overwrite)

    @abstractmethod
    def prepare_inputs(
        self,
        rows: npt.NDArray[np.int64],
        query_lens: npt.NDArray[np.int32],
        prefill_lens: npt.NDArray[np.int32],
        has_prefill: bool,
        num_drafts: npt.NDArray[np.int32] | None,
        num_reqs_padded: int,
        num_tokens_padded: int,
    ) -> PreparedBatch:
        """Prepare the inputs of a batch (B), from the scheduler's decisions on the host.

        For the request at batch index b in row r, let c be `num_computed_tokens[r]` on the device,
        q its query length, p its `prefill_len`, d its drafts, and n the number of its logits,
        `num_new_sampled_tokens` + d. Its tokens begin at s, `query_start_loc[b]`. These rules apply
        in this order, so a later one overwrites an earlier one:

        1. With `has_prefill`, if c < p: `input_ids[s + i] = all_token_ids[r, c + i]` for i < q,
           also beyond p. And `next_prefill_tokens[l, r]` becomes `all_token_ids[r, c + q + l]` for
           every l, or 0 where c + q + l is not below p.
        2. `positions[s + i] = c + i` for i < q, and `seq_lens[b] = c + q`.
        3. The logits of the request belong to its last n tokens.
        4. If c + q > p and c + q - n >= p, and `num_new_sampled_tokens` is 1: the first of the last
           n tokens becomes `last_sampled_tokens[r]`.
        5. If c + q > p: the last d tokens become the first d of `draft_tokens[r]`.

        Tokens are int64 on the device and become int32 by dropping their upper bits.

        The arrays are only read, and only during the call.

        Args:
            rows: `[R]` int64, the row of each request. R is 1 to `max_num_reqs`. A row may occur
                twice if both requests write the same `next_prefill_tokens`.
            query_lens: `[R]` int32, tokens of each request in this step; each at least the number
                of its logits, and at least 1. Their sum is T, 1 to `num_tokens_padded`.
            prefill_lens: `[R]` int32, equal to `requests.prefill_len` of each row.
            has_prefill: whether any request is in prefill, as the host knows it. If false, rule 1
                applies to no request.
            num_drafts: `[R]` int32, draft tokens of each request, 0 to `num_speculative_steps`;
                `None`: the step has no drafts.
            num_reqs_padded: R to `max_num_reqs`: requests that a captured graph reads.
            num_tokens_padded: T to `max_num_tokens`: tokens that a captured graph reads.

        A sequence must not become longer than `max_model_len`: c + q is at most that.

        Raises:
            ValueError: before anything has changed, when R is 0 or a size is out of range; with
                `validate`, also for contents of the arrays. An engine must apply staged writes
                in a step without requests, by `tables.apply_staged_writes`.
        """

    @abstractmethod
    def prepare(
        self,
        rows: npt.NDArray[np.int64],
        query_lens: npt.NDArray[np.int32],
        prefill_lens: npt.NDArray[np.int32],
        has_prefill: bool,
        num_drafts: npt.NDArray[np.int32] | None,
        num_reqs_padded: int,
        num_tokens_padded: int,
    ) -> PreparedBatch:
        """Apply staged writes, prepare inputs, gather, and compute slots (A + B + C).

        Arguments and errors are as in `prepare_inputs`. The gather gets
        `requests.num_computed_tokens`, so groups with a sliding window are masked. The slots follow
        from `positions`. `BlockTableOperations` defines block tables and slots.
        """
