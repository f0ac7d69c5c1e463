"""Fault: a batch of a single request launches one row, whatever is dirty or padded.

Seen: after a larger batch, or with num_reqs_padded above 1, rows from 1 on are not zeroed by a
gather of one request; batches of two or more are right.
"""

from __future__ import annotations

import torch

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """One program per group in the commonest case of a single user."""

    def _launch_gather(
        self,
        idx_mapping: torch.Tensor,
        num_rows: int,
        num_computed_tokens: torch.Tensor | None,
        out_ptrs: torch.Tensor | None,
    ) -> None:
        if idx_mapping.numel() == 1:
            num_rows = 1
        super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
