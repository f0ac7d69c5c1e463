"""The staged writes of a step, and the buffers that kernels read them from."""

from __future__ import annotations

from bt_kernels.staging.host_ring import CapturedBuffer, HostRing
from bt_kernels.staging.refusals import checked_row, refuse_append, refuse_append_many, refuse_ids
from bt_kernels.staging.writes import (
    CAPTURED_HEADER,
    LAST_COLUMN,
    MARK_FIELDS,
    NO_WRITE,
    RECORD_FIELDS,
    STEP_RECORD_FIELDS,
    TYPE_BIT,
    StagedWrites,
    staged_writes,
)

__all__ = [
    "CAPTURED_HEADER",
    "LAST_COLUMN",
    "MARK_FIELDS",
    "NO_WRITE",
    "RECORD_FIELDS",
    "STEP_RECORD_FIELDS",
    "TYPE_BIT",
    "CapturedBuffer",
    "HostRing",
    "StagedWrites",
    "checked_row",
    "refuse_append",
    "refuse_append_many",
    "refuse_ids",
    "staged_writes",
]
