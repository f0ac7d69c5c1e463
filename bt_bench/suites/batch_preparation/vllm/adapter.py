"""vLLM's own preparation of a batch as a variant; its functions are called as they are.

The catalogue runs this file once for each arm, as it does with any variant's file. It makes the
calls of `prepare_inputs` and `prepare_attn` of vLLM's model runner, in their order. It leaves out
work on the host that has no effect on the device, which favours vLLM: upper bounds of lengths,
copies of the scheduler's state, and the object of the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bt_bench.base.errors import UsageError
from bt_bench.suites.block_tables.vllm import adapter as tables_adapter
from bt_bench.suites.block_tables.vllm.differences import OpponentTables
from bt_bench.suites.block_tables.vllm.loading import load_names
from bt_bench.suites.block_tables.vllm.source import INPUT_BATCH, VllmSource
from bt_kernels.batch_inputs.buffers import RequestTensors
from bt_kernels.batch_inputs.interface import PreparedBatch
from bt_kernels.batch_inputs.layout import FEATURES, InputLayout
from bt_kernels.layout import TableLayout

RELEASE = "0.33.0"
_FUNCTIONS = (
    "prepare_prefill_inputs",
    "prepare_pos_seq_lens",
    "combine_sampled_and_draft_tokens",
    "expand_idx_mapping",
    "InputBuffers",
    "InputBatch",
)


def adapt(source: VllmSource) -> type[Any]:
    """Build the variant of a source, with its own copies of all functions.

    Raises:
        UsageError: for a source that cannot be loaded, or of another release than 0.33.0, whose
            functions have other arguments.
    """
    if source.release != RELEASE:
        raise UsageError(
            f"{source.root} is vLLM {source.release}; expected {RELEASE}, whose calls of "
            "prepare_inputs are known"
        )
    tables = tables_adapter.adapt(source)
    names = [(INPUT_BATCH, name) for name in _FUNCTIONS]
    *found, to_device = load_names(source, *names, ("vllm.utils.torch_utils", "async_tensor_h2d"))
    attributes: dict[str, Any] = {
        name: staticmethod(function) for name, function in zip(_FUNCTIONS, found, strict=True)
    }
    attributes |= {
        "async_tensor_h2d": staticmethod(to_device),
        "tables_class": tables,
        "features": FEATURES | tables.features,
        "differences": tables.differences,
        "__doc__": f"The `prepare_inputs` and `prepare_attn` of vLLM {source.release}.",
    }
    return type("Variant", (Adapter,), attributes)


class Adapter(OpponentTables):
    """A variant around vLLM's functions and block tables.

    Args:
        table_layout: sizes and options of the block tables.
        layout: sizes and flags of the inputs.
        requests: the state of the requests.
        device: where all tensors live.
    """

    prepare_prefill_inputs: Any
    prepare_pos_seq_lens: Any
    combine_sampled_and_draft_tokens: Any
    expand_idx_mapping: Any
    InputBuffers: Any
    InputBatch: Any
    async_tensor_h2d: Any
    tables_class: type[Any]
    features: frozenset[str]
    launch_paths = ("jit",)
    capturable: frozenset[str] = frozenset()

    def __init__(
        self,
        table_layout: TableLayout,
        layout: InputLayout,
        requests: RequestTensors,
        device: torch.device | str,
    ) -> None:
        self.layout = layout
        self.requests = requests
        self.device = torch.device(device)
        self.tables = self.tables_class(table_layout, device)
        self.buffers = self.InputBuffers(layout.max_num_reqs, layout.max_num_tokens, self.device)
        self.append_block_ids = self.tables.append_block_ids

    def make_dummy(self, num_reqs: int, num_tokens: int, buffers: Any) -> None:
        """Make vLLM's dummy batch in some buffers, as an engine does between batches."""
        self.InputBatch.make_dummy(num_reqs, num_tokens, buffers)

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
        """Make vLLM's calls of `prepare_inputs`; see `BatchInputOperations`."""
        buffers, requests, device = self.buffers, self.requests, self.device
        num_reqs = len(rows)
        num_tokens = int(query_lens.sum())
        is_padding = buffers.is_padding[:num_tokens_padded]
        if self.layout.marks_padding:
            is_padding[:num_tokens].fill_(False)
            is_padding[num_tokens:].fill_(True)
        idx_mapping = self.async_tensor_h2d(rows, device=device, dtype=torch.int64)
        bonus = self.layout.num_new_sampled_tokens
        expands = num_drafts is not None or bonus != 1
        num_draft_tokens = 0
        if not expands:
            num_logits = num_reqs
            cu_num_logits_np = np.arange(num_reqs + 1, dtype=np.int32)
            cu_num_logits = torch.arange(num_reqs + 1, device=device, dtype=torch.int32)
            expanded = idx_mapping
            local_pos = torch.zeros(num_reqs, dtype=torch.int32, device=device)
        else:
            counts = np.zeros(num_reqs, dtype=np.int32) if num_drafts is None else num_drafts
            num_draft_tokens = int(counts.sum())
            num_logits = num_reqs * bonus + num_draft_tokens
            cu_num_logits_np = np.zeros(num_reqs + 1, dtype=np.int32)
            np.cumsum(counts + bonus, out=cu_num_logits_np[1:])
            cu_num_logits = self.async_tensor_h2d(cu_num_logits_np, device=device)
        starts = np.empty(self.layout.max_num_reqs + 1, dtype=np.int32)
        starts[0] = 0
        np.cumsum(query_lens, out=starts[1 : num_reqs + 1])
        starts[num_reqs + 1 :] = num_tokens
        self.async_tensor_h2d(starts, out=buffers.query_start_loc)
        if expands:
            most = self.layout.num_speculative_steps + bonus
            expanded, local_pos = self.expand_idx_mapping(
                idx_mapping, num_logits, cu_num_logits, most
            )
        query_start_loc = buffers.query_start_loc[: num_reqs_padded + 1]
        if has_prefill:
            self.prepare_prefill_inputs(
                buffers.input_ids,
                requests.next_prefill_tokens,
                idx_mapping,
                query_start_loc,
                requests.all_token_ids,
                requests.prefill_len,
                requests.num_computed_tokens,
            )
        self.prepare_pos_seq_lens(
            idx_mapping,
            query_start_loc,
            requests.num_computed_tokens,
            buffers.positions,
            buffers.seq_lens,
        )
        seq_lens = buffers.seq_lens[:num_reqs_padded]
        logits_indices = self.combine_sampled_and_draft_tokens(
            buffers.input_ids,
            idx_mapping,
            requests.last_sampled_tokens,
            query_start_loc,
            seq_lens,
            requests.prefill_len,
            requests.draft_tokens,
            cu_num_logits,
            num_logits,
            bonus,
        )
        return PreparedBatch(
            idx_mapping,
            expanded,
            local_pos,
            cu_num_logits,
            logits_indices,
            buffers.input_ids[:num_tokens_padded],
            buffers.positions[:num_tokens_padded],
            is_padding,
            query_start_loc,
            seq_lens,
            starts[: num_reqs_padded + 1],
            cu_num_logits_np,
            num_draft_tokens,
        )

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
        """Apply staged writes, and make the calls of `prepare_inputs` and `prepare_attn`."""
        tables = self.tables
        tables.apply_staged_writes()
        batch = self.prepare_inputs(
            *(rows, query_lens, prefill_lens, has_prefill, num_drafts),
            *(num_reqs_padded, num_tokens_padded),
        )
        block_tables = tables.gather_block_tables(
            batch.idx_mapping,
            num_reqs_padded=num_reqs_padded,
            num_computed_tokens=self.requests.num_computed_tokens,
        )
        slot_mappings = tables.compute_slot_mappings(
            batch.idx_mapping,
            batch.query_start_loc,
            batch.positions,
            num_tokens_padded=num_tokens_padded,
        )
        return batch._replace(block_tables=block_tables, slot_mappings=slot_mappings)
