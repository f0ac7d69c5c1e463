"""Fault: prepare_step applies what is staged before it checks the batch.

Seen: a prepare_step that is refused, such as for num_reqs_padded below the batch, has changed
the source tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """The combined operation checks, so there is one check."""

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
        self.refuse_capture("prepare_step")
        self.apply_staged_writes()
        return self.gather_and_compute_slot_mappings(
            *(idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded),
            out=out,
            out_ptrs=out_ptrs,
            num_computed_tokens=num_computed_tokens,
            slots_out=slots_out,
        )
