"""The staged writes of a step, and the buffers for kernels to read them from."""

from __future__ import annotations

from bt_kernels.launches import why_not_pinned
from bt_kernels.staging.host_ring import CapturedBuffer, HostRing, ToldNumber
from bt_kernels.staging.refusals import checked_row, refuse_append, refuse_append_many, refuse_ids
from bt_kernels.staging.writes import (
    BITMAP_ROWS,
    CAPTURED_HEADER,
    MARK_FIELDS,
    MOST_WORDS,
    PIECE_IDS,
    RECORD_FIELDS,
    SEVERAL,
    STEP_RECORD_FIELDS,
    AnyStagedWrites,
    StagedWrites,
    bitmap_words,
    staged_writes,
)

__all__ = [
    "BITMAP_ROWS",
    "CAPTURED_HEADER",
    "MARK_FIELDS",
    "MOST_WORDS",
    "PIECE_IDS",
    "RECORD_FIELDS",
    "SEVERAL",
    "STEP_RECORD_FIELDS",
    "AnyStagedWrites",
    "CapturedBuffer",
    "HostRing",
    "StagedWrites",
    "ToldNumber",
    "bitmap_words",
    "checked_row",
    "refuse_append",
    "refuse_append_many",
    "refuse_ids",
    "staged_writes",
    "why_not_pinned",
]
