"""Profiles of one step: its timeline, and counters that Nsight Compute takes of a subprocess."""

from __future__ import annotations

from bt_bench.runs.profile.ncu import (
    CountersRequest,
    TakenCounters,
    take_counters,
    too_large,
)
from bt_bench.runs.profile.timeline import TimelineRequest, step_of, take_step_timeline

__all__ = [
    "CountersRequest",
    "TakenCounters",
    "TimelineRequest",
    "step_of",
    "take_counters",
    "take_step_timeline",
    "too_large",
]
