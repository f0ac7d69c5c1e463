"""Separate launches, as in vLLM 0.16.0: one per written group, gather, slots (G + 2 a step)."""

from __future__ import annotations

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    """`DeviceBlockTables` without changes."""
