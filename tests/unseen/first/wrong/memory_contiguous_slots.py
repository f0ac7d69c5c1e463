"""Fault: the returned slots are made contiguous, which copies them if there are several groups and
num_tokens_padded is below the buffer's length.

Seen: what the call returns is not a view of slot_mappings: a later step is not seen in it. With
one group it is.
"""

from __future__ import annotations

import torch

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Kernels want contiguous slots."""

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        views = super().compute_slot_mappings(
            idx_mapping, query_start_loc, positions, num_tokens_padded, out
        )
        return views if out is not None else views.contiguous()
