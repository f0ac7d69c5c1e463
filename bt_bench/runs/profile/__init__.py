"""Profiles of one step: its timeline, and counters that Nsight Compute takes of a subprocess."""

from __future__ import annotations

from bt_bench.runs.profile.ncu import (
    CountersRequest,
    TakenCounters,
    take_counters,
    too_large,
)
from bt_bench.runs.profile.timeline import TimelineRequest, step_of, take_step_timeline
