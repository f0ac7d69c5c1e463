"""Right: pads all slots before they are computed, and zeroes rows before they are gathered."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.layout import PAD_SLOT_ID
from bt_kernels.variants.fused_gather_slots import Variant as GatherSlots


class Variant(GatherSlots):
    """Slots first, and some work twice."""

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        (self.slot_mappings if out is None else out).fill_(PAD_SLOT_ID)
        super()._launch_slots(idx_mapping, query_start_loc, positions, out)

    def _launch_gather(
        self,
        idx_mapping: torch.Tensor,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
    ) -> None:
        if out_ptrs is None:
            for table in self.input_block_tables:
                table[idx_mapping.shape[0] : num_rows].zero_()
        super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)

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
        out_ptrs = self._check_step(
            *(idx_mapping, query_start_loc, positions, num_reqs_padded, num_tokens_padded),
            *(out, out_ptrs, num_computed_tokens, slots_out),
        )
        slots = self.compute_slot_mappings(
            idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        tables = self.gather_block_tables(
            idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
        )
        return tables, slots
