"""Positions below -1 are raised to -1 in the caller's tensor.

The slots are right, but the input is changed, even behind the step's tokens.
"""

from __future__ import annotations

from bt_kernels.variants.fused_apply import Variant as FusedApply


class Variant(FusedApply):
    """Keeps positions off large negative numbers."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        super()._launch_slots(idx_mapping, query_start_loc, positions.clamp_(min=-1), out)
