"""One launch function per kernel, and the launch paths."""

from __future__ import annotations

from bt_kernels.launches.kernels import (
    CAPTURED_PROGRAMS,
    ROW_BLOCK,
    WRITE_BLOCK,
    Tables,
    apply_captured,
    apply_writes,
    gather,
    gather_slots,
    jit_launches,
    slots,
)
from bt_kernels.launches.paths import (
    ALIGNMENT,
    COMPILES,
    NUM_WARPS,
    CompiledLaunches,
    DirectLaunches,
    Grid,
    LaunchFunction,
    direct_launch,
    direct_replay,
    find_launcher,
    launch_jit,
    require_driver,
)
from bt_kernels.launches.pinned import why_not_pinned
from bt_kernels.launches.place import Place, written

__all__ = [
    "ALIGNMENT",
    "CAPTURED_PROGRAMS",
    "COMPILES",
    "NUM_WARPS",
    "ROW_BLOCK",
    "WRITE_BLOCK",
    "CompiledLaunches",
    "DirectLaunches",
    "Grid",
    "LaunchFunction",
    "Place",
    "Tables",
    "apply_captured",
    "apply_writes",
    "direct_launch",
    "direct_replay",
    "find_launcher",
    "gather",
    "gather_slots",
    "jit_launches",
    "launch_jit",
    "require_driver",
    "slots",
    "why_not_pinned",
    "written",
]
