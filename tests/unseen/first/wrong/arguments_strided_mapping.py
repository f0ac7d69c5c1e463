"""Fault: an idx_mapping that is not contiguous is copied and accepted.

Seen: a gather with every second element of a tensor as idx_mapping works; a ValueError is to be
raised.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Takes slices with a step."""

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        if idx_mapping.dim() == 1 and idx_mapping.stride(0) > 1:
            idx_mapping = idx_mapping.contiguous()
        return super().gather_block_tables(
            idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
        )
