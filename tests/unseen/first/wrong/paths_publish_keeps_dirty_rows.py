"""Fault: a publication does not zero dirty rows behind those that a replay fills.

Seen: after a gather of many rows, publish for a captured step of fewer: input rows behind keep
their ids.
"""

from __future__ import annotations

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """Leaves the rows to the replay."""

    def _zero_dirty_rows(self, num_reqs_padded: int) -> None:
        self.num_dirty_rows = num_reqs_padded
