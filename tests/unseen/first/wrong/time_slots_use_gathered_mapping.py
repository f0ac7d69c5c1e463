"""Fault: slots reuse the rows that the last gather read, if the batch has as many requests.

Seen: gather with one mapping, then slots alone with another mapping of the same length: slots
are those of the first mapping's rows.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """The mapping of a step is read once."""

    _rows: torch.Tensor | None = None

    def _launch_gather(
        self,
        idx_mapping: torch.Tensor,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
    ) -> None:
        self._rows = idx_mapping.clone()
        super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        rows, self._rows = self._rows, None
        if rows is not None and rows.shape == idx_mapping.shape:
            idx_mapping = rows
        super()._launch_slots(idx_mapping, query_start_loc, positions, out)
