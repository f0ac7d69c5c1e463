"""Fault: the sliding window is left out where a caller gives the tables.

Seen: with out and num_computed_tokens, columns before the window hold ids and not 0; each
option alone is right.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """Two kernels of options rather than three."""

    def _launch_gather(
        self,
        idx_mapping: torch.Tensor,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
    ) -> None:
        if out_ptrs is not None:
            num_computed_tokens = None
        super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
