"""Fault: the combined operation gathers before it checks the arguments of slots.

Seen: gather_and_compute_slot_mappings refused for positions of the wrong dtype has changed the
input tables and num_dirty_rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """Every operation checks its own arguments."""

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
        tables = self.gather_block_tables(
            idx_mapping, num_reqs_padded, out, out_ptrs, num_computed_tokens
        )
        slots = self.compute_slot_mappings(
            idx_mapping, query_start_loc, positions, num_tokens_padded, slots_out
        )
        return tables, slots
