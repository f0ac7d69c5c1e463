"""Slots for a caller's buffer whose rows are not side by side are written into a copy of it.

Shows with a buffer that is a slice of the columns of a wider one.
"""

from __future__ import annotations

from bt_kernels.variants.fused_apply import Variant as FusedApply


class Variant(FusedApply):
    """Passes contiguous memory to the kernel."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        out = None if out is None else out.contiguous()
        super()._launch_slots(idx_mapping, query_start_loc, positions, out)
