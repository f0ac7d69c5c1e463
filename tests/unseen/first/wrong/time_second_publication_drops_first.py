"""Fault: a second publication of a captured step overwrites one that was never replayed.

Seen: stage, publish, stage, publish without a replay between, then apply: the first ids are
missing in the source tables.
"""

from __future__ import annotations

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """A publication begins with a clean buffer."""

    def _zero_dirty_rows(self, num_reqs_padded: int) -> None:
        super()._zero_dirty_rows(num_reqs_padded)
        if self._captured_writes is not None:
            self._captured_writes._published = False
