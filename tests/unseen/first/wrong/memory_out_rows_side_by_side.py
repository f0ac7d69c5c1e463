"""Fault: the rows of a caller's slots are taken to follow each other without gaps.

Seen: with an out that is the left part of a wider tensor, slots of groups from 1 on are written
to the wrong place, in columns behind the view.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """One stride fewer to pass."""

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        if out is not None and out.stride(0) != out.shape[1]:
            out = out.as_strided(out.shape, (out.shape[1], 1))
        super()._launch_slots(idx_mapping, query_start_loc, positions, out)
