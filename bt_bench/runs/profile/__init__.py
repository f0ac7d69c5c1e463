"""Profiles that another tool takes of a process of ours."""

from __future__ import annotations

from bt_bench.runs.profile.ncu import (
    CountersRequest,
    TakenCounters,
    take_counters,
    too_large,
)

__all__ = ["CountersRequest", "TakenCounters", "take_counters", "too_large"]
