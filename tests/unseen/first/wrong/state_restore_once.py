"""Fault: restoring the state that was restored last is skipped, unless writes were applied or
staged in between.

Seen: restore a state, gather, restore the same state again: the input tables are those of the
gather.
"""

from __future__ import annotations

from bt_kernels.device_tables import DeviceBlockTables
from bt_kernels.interface import TableState


class Variant(DeviceBlockTables):
    """Nothing is copied twice."""

    _restored: TableState | None = None

    def restore(self, state: TableState) -> None:
        if state is self._restored and not self._staged:
            self.num_dirty_rows = state.num_dirty_rows
            return
        super().restore(state)
        self._restored = state

    def apply_staged_writes(self) -> None:
        if self._staged or self._captured_writes is not None:
            self._restored = None
        super().apply_staged_writes()
