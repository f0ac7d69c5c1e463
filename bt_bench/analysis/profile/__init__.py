"""Analysis of profiles: timelines, hardware counters, host functions, and their changes."""

from __future__ import annotations

from bt_bench.analysis.profile.counters import (
    DRAM,
    L2,
    PCIE,
    CounterChange,
    CounterRow,
    counter_changes,
    counter_rows,
    stall_shares,
    times_required,
    total,
)
from bt_bench.analysis.profile.host_calls import host_changes
from bt_bench.analysis.profile.reading import condensed, read_step
from bt_bench.analysis.profile.rows import Lane, RowKind, TimelineRow
from bt_bench.analysis.profile.same_step import (
    other_speed,
    plan_of,
    refuse_another_plan,
    refuse_another_step,
)
from bt_bench.analysis.profile.step_changes import StepChange, step_changes
from bt_bench.analysis.profile.timeline import Explained, explain
