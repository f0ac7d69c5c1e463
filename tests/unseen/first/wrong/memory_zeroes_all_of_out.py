"""Fault: rows of the caller's out behind num_reqs_padded are zeroed too.

Seen: rows of out from num_reqs_padded on are 0; they are to be left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """A caller's table is clean to its end."""

    def gather_block_tables(
        self,
        idx_mapping: torch.Tensor,
        num_reqs_padded: int,
        out: Sequence[torch.Tensor] | None = None,
        out_ptrs: torch.Tensor | None = None,
        num_computed_tokens: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        views = super().gather_block_tables(
            idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
        )
        for table in out or ():
            table[num_reqs_padded:] = 0
        return views

    def gather_and_compute_slot_mappings(
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
        found = super().gather_and_compute_slot_mappings(
            *(idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded),
            out=out,
            out_ptrs=out_ptrs,
            num_computed_tokens=num_computed_tokens,
            slots_out=slots_out,
        )
        for table in out or ():
            table[num_reqs_padded:] = 0
        return found
