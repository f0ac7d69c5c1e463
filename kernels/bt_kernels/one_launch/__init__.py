"""A step in one launch."""

from __future__ import annotations

from bt_kernels.one_launch.captured import CapturedLaunch
from bt_kernels.one_launch.fixed import FixedLaunch, Options
from bt_kernels.one_launch.graph import OneLaunchGraph
from bt_kernels.one_launch.shapes import (
    ADDRESS_BITS,
    BLOCK,
    CHUNK,
    DLPACK_CUDA,
    FEW,
    FEWEST_SLOTS,
    FIXED,
    HEADER_FIELDS,
    LONG,
    LONG_COLUMNS,
    LONG_TOKENS,
    MANY,
    MANY_ROWS,
    MARK_FIELDS,
    MAX_CHUNKS,
    MAX_PADS,
    MAX_PROGRAMS,
    MAX_TILE_PROGRAMS,
    MAX_WORDS,
    MOST_SLOTS,
    OPTION_FIELDS,
    SHAPES,
    SLOTS_INTERPRETED,
    STEP_RECORD_FIELDS,
    WORDS,
    Shape,
)
from bt_kernels.one_launch.tables import OneLaunch
from bt_kernels.one_launch.writes import CarryingLaunch, StepWrites

__all__ = [
    "ADDRESS_BITS",
    "BLOCK",
    "CHUNK",
    "DLPACK_CUDA",
    "FEW",
    "FEWEST_SLOTS",
    "FIXED",
    "HEADER_FIELDS",
    "LONG",
    "LONG_COLUMNS",
    "LONG_TOKENS",
    "MANY",
    "MANY_ROWS",
    "MARK_FIELDS",
    "MAX_CHUNKS",
    "MAX_PADS",
    "MAX_PROGRAMS",
    "MAX_TILE_PROGRAMS",
    "MAX_WORDS",
    "MOST_SLOTS",
    "OPTION_FIELDS",
    "SHAPES",
    "SLOTS_INTERPRETED",
    "STEP_RECORD_FIELDS",
    "WORDS",
    "CapturedLaunch",
    "CarryingLaunch",
    "FixedLaunch",
    "OneLaunch",
    "OneLaunchGraph",
    "Options",
    "Shape",
    "StepWrites",
]
