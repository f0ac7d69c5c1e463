"""Workloads: the exact steps of a case, synthetic or from a trace."""

from __future__ import annotations

from bt_bench.suites.block_tables.workloads.assemble import estimate_bytes, layout_of
from bt_bench.suites.block_tables.workloads.conformance.plain import conformance_workloads
from bt_bench.suites.block_tables.workloads.describe import (
    Description,
    Distribution,
    RecordedFigures,
    StepFigures,
    TraceFigures,
)
from bt_bench.suites.block_tables.workloads.kind import WorkloadParameters
from bt_bench.suites.block_tables.workloads.kinds.batch import BatchParameters
from bt_bench.suites.block_tables.workloads.kinds.spread import SpreadParameters
from bt_bench.suites.block_tables.workloads.kinds.trace import TraceParameters
from bt_bench.suites.block_tables.workloads.kinds.uniform import UniformParameters
from bt_bench.suites.block_tables.workloads.parameters import MAX_REQS, TableParameters
from bt_bench.suites.block_tables.workloads.steps import Append, Step
from bt_bench.suites.block_tables.workloads.window import Window
from bt_bench.suites.block_tables.workloads.workload import Workload
