"""Right: every input is copied first; nothing of the caller's is read later."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.device_tables import arguments
from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Works on copies."""

    capturable = frozenset()

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        arguments.check_mapping(self.layout, self.device, idx_mapping)
        if num_computed_tokens is not None:
            arguments.check_computed(self.layout, self.device, num_computed_tokens)
            num_computed_tokens = num_computed_tokens.clone()
        return super().gather_block_tables(
            idx_mapping.clone(), num_reqs_padded, out, out_ptrs, num_computed_tokens
        )

    def compute_slot_mappings(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_tokens_padded: int,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)
        self._check_slots(num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, out)
        copies = (idx_mapping.clone(), query_start_loc.clone(), positions.clone())
        return super().compute_slot_mappings(*copies, num_tokens_padded, out)
