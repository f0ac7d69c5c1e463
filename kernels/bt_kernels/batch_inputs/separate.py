"""The preparation of batches by separate operations of the device, as vLLM does it.

A subclass may move the host's part to the device in another way (`_move`), or make the constant
outputs in another way (`_one_logit_each`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from bt_kernels.batch_inputs.arguments import check_contents, check_layouts, check_sizes
from bt_kernels.batch_inputs.buffers import InputBuffers, RequestTensors
from bt_kernels.batch_inputs.interface import BatchInputOperations, PreparedBatch
from bt_kernels.batch_inputs.layout import FEATURES, InputLayout
from bt_kernels.device_code.separate_inputs import (
    combine_kernel,
    expand_kernel,
    positions_kernel,
    prompt_tokens_kernel,
)
from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.layout import FEATURES as TABLE_FEATURES
from bt_kernels.layout import TableLayout

BLOCK = 1024  # tokens that a program copies at a time


class Moved(NamedTuple):
    """The host's part of a step on the device: new tensors, and `query_start_loc` in its buffer.

    Args:
        idx_mapping: `[R]` int64.
        cu_num_logits: `[R + 1]` int32; `None`: each request has one logit.
    """

    idx_mapping: torch.Tensor
    cu_num_logits: torch.Tensor | None


class SeparateInputs(BatchInputOperations):
    """A device operation for each output, and separate launches for block tables and slots.

    It takes the arguments of `BatchInputOperations`.
    """

    features = FEATURES | TABLE_FEATURES

    tables: DeviceBlockTables
    tables_type: type[DeviceBlockTables] = DeviceBlockTables

    def __init__(
        self,
        table_layout: TableLayout,
        layout: InputLayout,
        requests: RequestTensors,
        device: torch.device | str,
        buffers: InputBuffers | None = None,
        tables: DeviceBlockTables | None = None,
    ) -> None:
        check_layouts(table_layout, layout)
        self.layout = layout
        self.requests = requests
        self.tables = self.tables_type(table_layout, device) if tables is None else tables
        self.device = self.tables.device
        self.buffers = buffers or InputBuffers.zeros(layout, self.device)
        self._pins = self.device.type == "cuda"
        most_logits = layout.num_speculative_steps + layout.num_new_sampled_tokens
        self._logit_block = _power_of_two(most_logits)
        self._lookahead_block = _power_of_two(layout.num_lookahead)
        if type(self).append_block_ids is BatchInputOperations.append_block_ids:
            # The method's frame would cost time in every call, and in a short one most of it.
            self.append_block_ids = self.tables.append_block_ids  # type: ignore[method-assign]

    @property
    def launch_paths(self) -> tuple[str, ...]:  # type: ignore[override]  # not to be set
        """Return the launch paths of the block tables, which the kernels here share."""
        return self.tables.launch_paths

    @property
    def launch_path(self) -> str:
        """The path of launches from now on, one of `launch_paths`."""
        return self.tables.launch_path

    @launch_path.setter
    def launch_path(self, path: str) -> None:
        self.tables.launch_path = path

    def use_prefill_len(self, prefill_len: torch.Tensor) -> None:
        """Read the lengths of prompts from another tensor, from the next batch on.

        vLLM writes all of them anew when requests arrive, in turn into two or more buffers, since
        the device may still read the last one.

        Args:
            prefill_len: as in `RequestTensors`, on the same device.
        """
        self.requests = replace(self.requests, prefill_len=prefill_len)

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
        layout, buffers = self.layout, self.buffers
        num_reqs = len(rows)
        starts = np.empty(layout.max_num_reqs + 1, dtype=np.int32)
        starts[0] = 0
        np.cumsum(query_lens, out=starts[1 : num_reqs + 1])
        num_tokens = int(starts[num_reqs])
        starts[num_reqs + 1 :] = num_tokens
        check_sizes(layout, num_reqs, num_tokens, num_reqs_padded, num_tokens_padded)
        if self.validate:
            check_contents(layout, self.requests, rows, query_lens, prefill_lens, num_drafts)
        if layout.marks_padding:
            self._mark_padding(num_tokens, num_tokens_padded)
        cu_num_logits, num_drafts_in_all = self._count_logits(num_reqs, num_drafts)
        has_one_each = num_drafts is None and layout.num_new_sampled_tokens == 1
        idx_mapping, cu_on_device = self._move(
            rows, starts, None if has_one_each else cu_num_logits
        )
        num_logits = int(cu_num_logits[num_reqs])
        if cu_on_device is None:
            cu_on_device, local_pos = self._one_logit_each(num_reqs)
            expanded = idx_mapping
        else:
            expanded, local_pos = self._expand(idx_mapping, cu_on_device, num_logits)
        if has_prefill:
            self._launch_prompts(idx_mapping)
        self._launch_positions(idx_mapping)
        logits_indices = self._combine(idx_mapping, cu_on_device, num_logits)
        return PreparedBatch(
            idx_mapping,
            expanded,
            local_pos,
            cu_on_device,
            logits_indices,
            buffers.input_ids[:num_tokens_padded],
            buffers.positions[:num_tokens_padded],
            buffers.is_padding[:num_tokens_padded],
            buffers.query_start_loc[: num_reqs_padded + 1],
            buffers.seq_lens[:num_reqs_padded],
            starts[: num_reqs_padded + 1],
            cu_num_logits,
            num_drafts_in_all,
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
        sizes = len(rows), int(query_lens.sum())
        check_sizes(self.layout, *sizes, num_reqs_padded, num_tokens_padded)
        if self.validate:
            check_contents(self.layout, self.requests, rows, query_lens, prefill_lens, num_drafts)
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

    def _mark_padding(self, num_tokens: int, num_tokens_padded: int) -> None:
        is_padding = self.buffers.is_padding
        is_padding[:num_tokens].fill_(False)
        is_padding[num_tokens:num_tokens_padded].fill_(True)

    def _count_logits(
        self, num_reqs: int, num_drafts: npt.NDArray[np.int32] | None
    ) -> tuple[npt.NDArray[np.int32], int]:
        """Return `[R + 1]` the first logit of each request, and the number of all drafts."""
        bonus = self.layout.num_new_sampled_tokens
        cu_num_logits = np.arange(0, bonus * num_reqs + 1, max(bonus, 1), dtype=np.int32)
        if not bonus:
            cu_num_logits = np.zeros(num_reqs + 1, dtype=np.int32)
        if num_drafts is None:
            return cu_num_logits, 0
        cu_num_logits[1:] += np.cumsum(num_drafts, dtype=np.int32)
        return cu_num_logits, int(cu_num_logits[num_reqs]) - bonus * num_reqs

    def _move(
        self,
        rows: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int32],
        cu_num_logits: npt.NDArray[np.int32] | None,
    ) -> Moved:
        """Copy the host's part of a step to the device, by one copy for each output."""
        idx_mapping = self._to_device(rows)
        query_start_loc = self.buffers.query_start_loc
        query_start_loc.copy_(self._pinned(starts), non_blocking=True)
        return Moved(idx_mapping, None if cu_num_logits is None else self._to_device(cu_num_logits))

    def _one_logit_each(self, num_reqs: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `cu_num_logits` and `expanded_local_pos` of a step without drafts."""
        return (
            torch.arange(num_reqs + 1, dtype=torch.int32, device=self.device),
            torch.zeros(num_reqs, dtype=torch.int32, device=self.device),
        )

    def _expand(
        self, idx_mapping: torch.Tensor, cu_num_logits: torch.Tensor, num_logits: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `expanded_idx_mapping` and `expanded_local_pos`."""
        expanded = torch.empty(num_logits, dtype=torch.int64, device=self.device)
        local_pos = torch.empty(num_logits, dtype=torch.int32, device=self.device)
        self.tables.launch(
            expand_kernel,
            (len(idx_mapping), 1, 1),
            (idx_mapping, cu_num_logits, expanded, local_pos),
            (self._logit_block,),
            (expanded, local_pos),
        )
        return expanded, local_pos

    def _launch_prompts(self, idx_mapping: torch.Tensor) -> None:
        requests = self.requests
        self.tables.launch(
            prompt_tokens_kernel,
            (len(idx_mapping), 1, 1),
            (
                idx_mapping,
                self.buffers.query_start_loc,
                requests.num_computed_tokens,
                requests.prefill_len,
                requests.all_token_ids,
                requests.all_token_ids.stride(0),
                self.buffers.input_ids,
                requests.next_prefill_tokens,
                requests.next_prefill_tokens.stride(0),
                self.layout.num_lookahead,
            ),
            (BLOCK, self._lookahead_block),
            (),
        )

    def _launch_positions(self, idx_mapping: torch.Tensor) -> None:
        buffers = self.buffers
        self.tables.launch(
            positions_kernel,
            (len(idx_mapping) + 1, 1, 1),
            (
                idx_mapping,
                buffers.query_start_loc,
                self.requests.num_computed_tokens,
                buffers.positions,
                buffers.seq_lens,
                self.layout.max_num_reqs,
            ),
            (BLOCK,),
            (),
        )

    def _combine(
        self, idx_mapping: torch.Tensor, cu_num_logits: torch.Tensor, num_logits: int
    ) -> torch.Tensor:
        """Write sampled tokens and drafts; return `logits_indices`."""
        buffers, requests = self.buffers, self.requests
        logits_indices = torch.empty(num_logits, dtype=torch.int64, device=self.device)
        self.tables.launch(
            combine_kernel,
            (len(idx_mapping), 1, 1),
            (
                idx_mapping,
                buffers.query_start_loc,
                cu_num_logits,
                buffers.seq_lens,
                requests.prefill_len,
                requests.last_sampled_tokens,
                requests.draft_tokens,
                requests.draft_tokens.stride(0),
                buffers.input_ids,
                logits_indices,
            ),
            (self.layout.num_new_sampled_tokens, self._logit_block),
            (logits_indices,),
        )
        return logits_indices

    def _to_device(self, array: npt.NDArray[np.integer]) -> torch.Tensor:
        """Return a new tensor on the device, without waiting for it."""
        if not self._pins:
            return torch.from_numpy(array).clone()
        return self._pinned(array).to(self.device, non_blocking=True)

    def _pinned(self, array: npt.NDArray[np.integer]) -> torch.Tensor:
        """Return a copy in pinned memory, which torch reuses only once its copy was made."""
        tensor = torch.from_numpy(array)
        return tensor.pin_memory() if self._pins else tensor


def _power_of_two(size: int) -> int:
    """Return the smallest power of two that is not below a size."""
    return 1 << max(size - 1, 0).bit_length()
