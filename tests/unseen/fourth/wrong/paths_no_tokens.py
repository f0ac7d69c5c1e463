"""A step without tokens returns before its slots are padded: they keep those of the step before.

Requests may wait without a token of their own, for a transfer, say. All slots have to be PAD then.
"""

from __future__ import annotations

from bt_kernels.variants.baseline import Variant as Base


class Variant(Base):
    """Launches no slots where there are none."""

    def _launch_slots(self, idx_mapping, query_start_loc, positions, out):
        if positions.shape[0]:
            super()._launch_slots(idx_mapping, query_start_loc, positions, out)
