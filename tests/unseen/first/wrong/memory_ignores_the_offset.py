"""Fault: query_start_loc is read from the beginning of its storage.

Seen: with query_start_loc a slice that begins inside a longer tensor, slots are cut by what
precedes it; a tensor of its own is right.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply


class Variant(FusedApply):
    """Starts come from a persistent buffer, with checks that it is one."""

    capturable = frozenset({"gather_block_tables"})

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        size = idx_mapping.numel() + 1
        starts = query_start_loc.as_strided((size,), (1,), 0)
        if int(starts[0]) != 0 or int(starts[-1]) > positions.numel():
            starts = query_start_loc
        super()._launch_slots(idx_mapping, starts, positions, out)
