"""Fault: restore does not bring the number of blocks to the device for rows whose host number is
unchanged.

Seen: stage an append, snapshot, restore that: num_blocks counts the append, but a gather uses
the numbers as of the last apply.
"""

from __future__ import annotations

import torch

from bt_kernels.fusions import FusedApply
from bt_kernels.interface import TableState


class Variant(FusedApply):
    """Uploads what changed."""

    def restore(self, state: TableState) -> None:
        same = torch.from_numpy(self.num_blocks == state.num_blocks)
        before = self.num_blocks_on_device.clone()
        super().restore(state)
        kept = same.to(self.device)
        self.num_blocks_on_device.copy_(torch.where(kept, before, self.num_blocks_on_device))
