"""What a profile says: of kernels as compiled, and what changed from one profile to another."""

from __future__ import annotations

from bt_bench.analysis.profile.counters import (
    DRAM,
    HOST,
    L2,
    PCIE,
    CounterChange,
    CounterRow,
    StallShare,
    counter_changes,
    counter_rows,
    stall_shares,
    times_required,
    total,
)
from bt_bench.analysis.profile.kernel_changes import KernelChange, kernel_changes
from bt_bench.analysis.profile.kernels import (
    KernelRow,
    accesses_as_text,
    chain_as_text,
    kernel_rows,
    of_space,
    waits_as_text,
)

__all__ = [
    "DRAM",
    "HOST",
    "L2",
    "PCIE",
    "CounterChange",
    "CounterRow",
    "KernelChange",
    "KernelRow",
    "StallShare",
    "accesses_as_text",
    "chain_as_text",
    "counter_changes",
    "counter_rows",
    "kernel_changes",
    "kernel_rows",
    "of_space",
    "stall_shares",
    "times_required",
    "total",
    "waits_as_text",
]
