"""A sweep, on one device or on several at once: for each case check, then measure, then store."""

from __future__ import annotations

from bt_bench.runs.sweep.request import SweepRequest, write_plan
from bt_bench.runs.sweep.running import run_sweep
