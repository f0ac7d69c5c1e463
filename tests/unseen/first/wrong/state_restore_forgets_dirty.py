"""Fault: restore leaves num_dirty_rows as it is if the snapshot has fewer.

Seen: restore a snapshot with fewer dirty rows: num_dirty_rows is that of before, and the next
gather zeroes rows that it is to leave alone.
"""

from __future__ import annotations

from bt_kernels.interface import TableState
from bt_kernels.variants.fused import Variant as Fused


class Variant(Fused):
    """Rather zeroes a row too many."""

    def restore(self, state: TableState) -> None:
        dirty = self.num_dirty_rows
        super().restore(state)
        self.num_dirty_rows = max(dirty, self.num_dirty_rows)
