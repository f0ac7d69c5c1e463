"""Slots are padded only as far as any call before has filled them.

After a restore of a snapshot of other tables, the slots behind that stay as restored.
"""

from __future__ import annotations

from bt_kernels.variants.fused_apply import Variant as FusedApply


class Variant(FusedApply):
    """Pads less."""

    _high = 0

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if out is None:
            # Whatever lies behind is PAD from the beginning.
            most = self.layout.max_num_batched_tokens
            self._high = min(max(self._high, positions.shape[0]), most)
            out = self.slot_mappings[:, : self._high]
        super()._launch_slots(idx_mapping, query_start_loc, positions, out)
