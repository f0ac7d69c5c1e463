"""Fault: the set of written groups is a mask of 8 bits.

Seen: what is staged for groups from 8 on never reaches their source tables.
"""

from __future__ import annotations

import numpy as np

from bt_kernels import launches
from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """One launch for each group in a mask."""

    def _launch_apply(self, records_per_group: list[int]) -> None:
        written = np.packbits(np.array(records_per_group[:8]) > 0, bitorder="little")[0]
        first_record = 0
        for group, num_records in enumerate(records_per_group):
            if int(written) >> group & 1:
                launches.apply_writes(self, self._ring.current, first_record, num_records)
            first_record += num_records
