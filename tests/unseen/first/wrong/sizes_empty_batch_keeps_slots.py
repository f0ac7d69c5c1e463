"""Fault: slots of no requests are not padded.

Seen: with an empty mapping slots of the step before are left.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """No requests, no launch."""

    capturable = frozenset({"gather_block_tables"})

    def _launch_slots(
        self,
        idx_mapping: torch.Tensor,
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        out: torch.Tensor | None,
    ) -> None:
        if idx_mapping.shape[0]:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
