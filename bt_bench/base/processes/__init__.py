"""Processes that run users' code. They send data, and never code that would run here."""

from __future__ import annotations

from bt_bench.base.processes.child import Child, answer, settle
from bt_bench.base.processes.data import NoDataError, Sealed, pack, unpack
from bt_bench.base.processes.lifetime import descendants_of, run_kept
