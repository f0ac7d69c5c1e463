"""Block tables on a device: their state, their operations, captured steps."""

from __future__ import annotations

from bt_kernels.device_tables.captured import CapturedStep, CapturedWrites
from bt_kernels.device_tables.tables import DeviceBlockTables

__all__ = [
    "CapturedStep",
    "CapturedWrites",
    "DeviceBlockTables",
]
