"""Fault: the fused call writes slots into the caller's buffer only if it gathers into the caller's
tables too.

Seen: gather_and_compute_slot_mappings with slots_out alone returns a view of it that was never
written, and fills slot_mappings.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels import launches
from bt_kernels.device_tables import arguments
from bt_kernels.variants.fused_gather_slots import Variant as GatherSlots


class Variant(GatherSlots):
    """One kernel for both outputs of a caller."""

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
        num_reqs = arguments.check_mapping(self.layout, self.device, idx_mapping)
        arguments.check_rows(self.layout, num_reqs, num_reqs_padded)
        window, ptrs = self._options(num_reqs_padded, out, out_ptrs, num_computed_tokens)
        slots = self._check_slots(
            num_reqs, idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        num_rows, dirty = self._rows_to_gather(num_reqs, num_reqs_padded, out)
        if slots_out is not None and slots_out.shape[1] <= self.layout.max_num_batched_tokens:
            slots_out = slots_out if ptrs is not None else None
        batch = (idx_mapping, query_start_loc, positions)
        launches.gather_slots(self, *batch, num_rows, window, ptrs, slots_out)
        self.num_dirty_rows = dirty
        return self._views(num_reqs_padded, out), slots
