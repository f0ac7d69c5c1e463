"""The semantics in plain code, in the order of vLLM's calls: slow, obvious, on the CPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from bt_kernels.batch_inputs.buffers import InputBuffers, RequestTensors
from bt_kernels.batch_inputs.interface import BatchInputOperations, PreparedBatch
from bt_kernels.batch_inputs.layout import FEATURES, InputLayout
from bt_kernels.layout import FEATURES as TABLE_FEATURES
from bt_kernels.layout import TableLayout
from bt_kernels.variants.reference import Variant as ReferenceTables


class Variant(BatchInputOperations):
    """The reference for all other variants. It shares no code with them."""

    features = FEATURES | TABLE_FEATURES

    def __init__(
        self,
        table_layout: TableLayout,
        layout: InputLayout,
        requests: RequestTensors,
        device: torch.device | str = "cpu",
        buffers: InputBuffers | None = None,
    ) -> None:
        if table_layout.max_num_reqs != layout.max_num_reqs:
            raise ValueError(
                f"max_num_reqs is {layout.max_num_reqs} for inputs and "
                f"{table_layout.max_num_reqs} for tables; expected the same"
            )
        if table_layout.max_num_batched_tokens < layout.max_num_tokens:
            raise ValueError(
                f"max_num_tokens is {layout.max_num_tokens}; expected at most the tables' "
                f"max_num_batched_tokens, {table_layout.max_num_batched_tokens}"
            )
        self.layout = layout
        self.requests = requests
        self.tables = ReferenceTables(table_layout, device)
        # As wide as on a device: a check fills them with values that wrap there.
        tables = [table.to(torch.int32) for table in self.tables.input_block_tables]
        self.tables.input_block_tables = tables
        self.buffers = buffers or InputBuffers.zeros(layout, device)

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
        self._check_sizes(rows, query_lens, num_reqs_padded, num_tokens_padded)
        num_reqs, num_tokens = len(rows), int(query_lens.sum())
        buffers = self.buffers
        if self.layout.marks_padding:
            buffers.is_padding[:num_tokens] = False
            buffers.is_padding[num_tokens:num_tokens_padded] = True

        bonus = self.layout.num_new_sampled_tokens
        drafts = [0] * num_reqs if num_drafts is None else num_drafts.tolist()
        num_logits = [bonus + count for count in drafts]
        cu_num_logits = np.concatenate([[0], np.cumsum(num_logits)]).astype(np.int32)
        starts = np.full(self.layout.max_num_reqs + 1, num_tokens, dtype=np.int32)
        starts[: num_reqs + 1] = np.concatenate([[0], np.cumsum(query_lens)])
        buffers.query_start_loc.copy_(torch.from_numpy(starts))

        idx_mapping = torch.from_numpy(rows.astype(np.int64))
        expanded = idx_mapping
        if num_drafts is not None or bonus != 1:
            expanded = torch.from_numpy(np.repeat(rows, num_logits).astype(np.int64))
        local_pos = [np.arange(count, dtype=np.int32) for count in num_logits]
        if has_prefill:
            self._take_prompts(rows, starts)
        self._set_positions(rows, starts)
        logits_indices = self._combine(rows, starts, drafts)
        return PreparedBatch(
            idx_mapping,
            expanded,
            torch.from_numpy(np.concatenate(local_pos)),
            torch.from_numpy(cu_num_logits.copy()),
            logits_indices,
            buffers.input_ids[:num_tokens_padded],
            buffers.positions[:num_tokens_padded],
            buffers.is_padding[:num_tokens_padded],
            buffers.query_start_loc[: num_reqs_padded + 1],
            buffers.seq_lens[:num_reqs_padded],
            starts[: num_reqs_padded + 1],
            cu_num_logits,
            sum(drafts),
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
        self._check_sizes(rows, query_lens, num_reqs_padded, num_tokens_padded)
        self.tables.apply_staged_writes()
        batch = self.prepare_inputs(
            rows,
            query_lens,
            prefill_lens,
            has_prefill,
            num_drafts,
            num_reqs_padded,
            num_tokens_padded,
        )
        block_tables = self.tables.gather_block_tables(
            batch.idx_mapping,
            num_reqs_padded,
            num_computed_tokens=self.requests.num_computed_tokens,
        )
        slot_mappings = self.tables.compute_slot_mappings(
            batch.idx_mapping, batch.query_start_loc, batch.positions, num_tokens_padded
        )
        return batch._replace(block_tables=block_tables, slot_mappings=slot_mappings)

    def _check_sizes(
        self,
        rows: npt.NDArray[np.int64],
        query_lens: npt.NDArray[np.int32],
        num_reqs_padded: int,
        num_tokens_padded: int,
    ) -> None:
        reqs, tokens = len(rows), int(query_lens.sum())
        if not 1 <= reqs <= num_reqs_padded <= self.layout.max_num_reqs:
            raise ValueError(
                f"{reqs} requests with num_reqs_padded {num_reqs_padded}; expected at least 1 "
                f"request, and {reqs} to {self.layout.max_num_reqs} padded"
            )
        if not 1 <= tokens <= num_tokens_padded <= self.layout.max_num_tokens:
            raise ValueError(
                f"{tokens} tokens with num_tokens_padded {num_tokens_padded}; expected at least 1 "
                f"token, and {tokens} to {self.layout.max_num_tokens} padded"
            )

    def _take_prompts(self, rows: npt.NDArray[np.int64], starts: npt.NDArray[np.int32]) -> None:
        """Copy tokens of requests in prefill, and note the tokens after them."""
        requests = self.requests
        for batch_index, row in enumerate(rows.tolist()):
            computed = int(requests.num_computed_tokens[row])
            prefill_len = int(requests.prefill_len[row])
            if computed >= prefill_len:
                continue
            start, end = starts[batch_index], starts[batch_index + 1]
            tokens = requests.all_token_ids[row]
            self.buffers.input_ids[start:end] = tokens[computed : computed + end - start]
            for ahead in range(self.layout.num_lookahead):
                position = computed + int(end - start) + ahead
                token = int(tokens[position]) if position < prefill_len else 0
                requests.next_prefill_tokens[ahead, row] = token

    def _set_positions(self, rows: npt.NDArray[np.int64], starts: npt.NDArray[np.int32]) -> None:
        """Write positions of all tokens, and lengths of all sequences."""
        seq_lens = self.buffers.seq_lens
        seq_lens[len(rows) :] = 0
        for batch_index, row in enumerate(rows.tolist()):
            computed = int(self.requests.num_computed_tokens[row])
            start, end = int(starts[batch_index]), int(starts[batch_index + 1])
            seq_lens[batch_index] = computed + end - start
            positions = torch.arange(computed, computed + end - start)
            self.buffers.positions[start:end] = positions

    def _combine(
        self, rows: npt.NDArray[np.int64], starts: npt.NDArray[np.int32], drafts: list[int]
    ) -> torch.Tensor:
        """Write sampled and draft tokens over tokens of prompts; return the tokens with logits."""
        input_ids, requests = self.buffers.input_ids, self.requests
        indices: list[int] = []
        for batch_index, (row, count) in enumerate(zip(rows.tolist(), drafts, strict=True)):
            end = int(starts[batch_index + 1])
            num_logits = self.layout.num_new_sampled_tokens + count
            first = end - num_logits
            indices += range(first, end)
            seq_len = int(self.buffers.seq_lens[batch_index])
            prefill_len = int(requests.prefill_len[row])
            if seq_len <= prefill_len:
                continue
            if self.layout.num_new_sampled_tokens and seq_len - num_logits >= prefill_len:
                last = requests.last_sampled_tokens.reshape(-1)[row]
                input_ids[first] = last.to(torch.int32)
            input_ids[end - count : end] = requests.draft_tokens[row, :count].to(torch.int32)
        return torch.tensor(indices, dtype=torch.int64)
