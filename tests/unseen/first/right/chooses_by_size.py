"""Right: small steps in one launch, larger ones as three operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.variants.one_launch import Variant as OneLaunchVariant


class Variant(OneLaunchVariant):
    """Two ways to make a step."""

    def prepare_step(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        num_reqs_padded: int,
        num_tokens_padded: int,
        *,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
        slots_out: torch.Tensor | None = None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        options = {
            "out": out,
            "out_ptrs": out_ptrs,
            "num_computed_tokens": num_computed_tokens,
            "slots_out": slots_out,
        }
        batch = (idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded)
        if isinstance(num_reqs_padded, int) and num_reqs_padded <= 3:
            return super().prepare_step(*batch, **options)
        self.refuse_capture("prepare_step")
        self._check_step(*batch, out, out_ptrs, num_computed_tokens, slots_out)
        self.apply_staged_writes()
        tables = self.gather_block_tables(
            idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
        )
        slots = self.compute_slot_mappings(
            idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        return tables, slots
