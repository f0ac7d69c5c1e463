"""Every 16th gather copies the host's number of blocks to the device.

It then gathers blocks that were staged and not applied yet.
"""

from __future__ import annotations

import torch

from bt_kernels.variants.fused_apply import Variant as FusedApply


class Variant(FusedApply):
    """Guards against counts that went apart."""

    _gathers = 0

    def _launch_gather(self, idx_mapping, num_rows, num_computed_tokens, out_ptrs):
        self._gathers += 1
        if self._gathers % 16 == 0:
            self.num_blocks_on_device.copy_(torch.from_numpy(self.num_blocks))
        super()._launch_gather(idx_mapping, num_rows, num_computed_tokens, out_ptrs)
