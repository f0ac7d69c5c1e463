"""The preparation of batches with fewer operations of the device, and no kernel of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from bt_kernels.batch_inputs.separate import Moved, SeparateInputs

if TYPE_CHECKING:
    from bt_kernels.batch_inputs.buffers import InputBuffers, RequestTensors
    from bt_kernels.batch_inputs.layout import InputLayout
    from bt_kernels.device_tables import DeviceBlockTables
    from bt_kernels.layout import TableLayout

_ALIGNMENT = 16  # bytes; kernels are compiled for pointers that are multiples of it


class StagedCopyInputs(SeparateInputs):
    """As `SeparateInputs`, with three savings.

    - All that the host knows goes to the device in one copy from pinned memory.
    - Without drafts, `cu_num_logits` and `expanded_local_pos` are prefixes of constant tensors.
    - Without padding, `is_padding` takes one fill.
    """

    def __init__(
        self,
        table_layout: TableLayout,
        layout: InputLayout,
        requests: RequestTensors,
        device: torch.device | str,
        buffers: InputBuffers | None = None,
        tables: DeviceBlockTables | None = None,
    ) -> None:
        super().__init__(table_layout, layout, requests, device, buffers, tables)
        reqs = layout.max_num_reqs
        self._counts = torch.arange(reqs + 1, dtype=torch.int32, device=self.device)
        self._zeros = torch.zeros(reqs, dtype=torch.int32, device=self.device)

    def _mark_padding(self, num_tokens: int, num_tokens_padded: int) -> None:
        is_padding = self.buffers.is_padding
        is_padding[:num_tokens].fill_(False)
        if num_tokens < num_tokens_padded:
            is_padding[num_tokens:num_tokens_padded].fill_(True)

    def _one_logit_each(self, num_reqs: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._counts[: num_reqs + 1], self._zeros[:num_reqs]

    def _move(
        self,
        rows: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int32],
        cu_num_logits: npt.NDArray[np.int32] | None,
    ) -> Moved:
        """Copy the host's part to new memory in one copy, and from there to `query_start_loc`."""
        parts: list[npt.NDArray[np.integer]] = [starts, rows]
        if cu_num_logits is not None:
            parts.append(cu_num_logits)
        begins = [0]
        for part in parts:
            begins.append(begins[-1] + -(-part.nbytes // _ALIGNMENT) * _ALIGNMENT)
        packed = torch.empty(begins[-1], dtype=torch.uint8, pin_memory=self._pins)
        view = packed.numpy()
        for begin, part in zip(begins, parts, strict=False):
            view[begin : begin + part.nbytes] = part.view(np.uint8)
        moved = packed.to(self.device, non_blocking=True)
        self.buffers.query_start_loc.copy_(moved[: starts.nbytes].view(torch.int32))
        first = begins[1]
        idx_mapping = moved[first : first + rows.nbytes].view(torch.int64)
        if cu_num_logits is None:
            return Moved(idx_mapping, None)
        first = begins[2]
        return Moved(idx_mapping, moved[first : first + cu_num_logits.nbytes].view(torch.int32))
