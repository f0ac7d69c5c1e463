"""What a profile says: of kernels as compiled, and what changed from one profile to another."""

from __future__ import annotations

from bt_bench.analysis.profile.counters import (
    DRAM,
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
from bt_bench.analysis.profile.host_calls import HostChange, host_changes
from bt_bench.analysis.profile.kernel_changes import KernelChange, kernel_changes
from bt_bench.analysis.profile.kernels import (
    KernelRow,
    accesses_as_text,
    chain_as_text,
    kernel_rows,
    of_space,
    waits_as_text,
)
from bt_bench.analysis.profile.reading import Reading, condensed, read_step
from bt_bench.analysis.profile.rows import Lane, TimelineRow, What
from bt_bench.analysis.profile.same_step import (
    other_speed,
    plan_of,
    refuse_another_plan,
    refuse_another_step,
)
from bt_bench.analysis.profile.step_changes import StepChange, StepChangeKind, step_changes
from bt_bench.analysis.profile.timeline import Explained, explain

__all__ = [
    "DRAM",
    "L2",
    "PCIE",
    "CounterChange",
    "CounterRow",
    "Explained",
    "HostChange",
    "KernelChange",
    "KernelRow",
    "Lane",
    "Reading",
    "StallShare",
    "StepChange",
    "StepChangeKind",
    "TimelineRow",
    "What",
    "accesses_as_text",
    "chain_as_text",
    "condensed",
    "counter_changes",
    "counter_rows",
    "explain",
    "host_changes",
    "kernel_changes",
    "kernel_rows",
    "of_space",
    "other_speed",
    "plan_of",
    "read_step",
    "refuse_another_plan",
    "refuse_another_step",
    "stall_shares",
    "step_changes",
    "times_required",
    "total",
    "waits_as_text",
]
