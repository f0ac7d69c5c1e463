"""Fault: positions in int32 are converted and accepted.

Seen: compute_slot_mappings with int32 positions returns slots where a ValueError is to be
raised.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Takes positions as they come."""

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if positions.dtype is torch.int32:
            positions = positions.long()
        return super().compute_slot_mappings(
            idx_mapping, query_start_loc, positions, num_tokens_padded, out
        )
