"""Workloads: the exact steps of a case, synthetic or from a trace."""

from __future__ import annotations

from bt_bench.workloads.assemble import estimate_bytes, layout_of
from bt_bench.workloads.build import build_workload
from bt_bench.workloads.conformance.plain import conformance_workloads
from bt_bench.workloads.describe import Description, Distribution, StepFigures
from bt_bench.workloads.kind import WorkloadParameters
from bt_bench.workloads.kinds import DEFAULT_KIND, KINDS, OfAnyKind
from bt_bench.workloads.kinds.batch import BatchParameters
from bt_bench.workloads.kinds.trace import TraceParameters, Window
from bt_bench.workloads.kinds.uniform import UniformParameters
from bt_bench.workloads.parameters import MAX_REQS, TableParameters
from bt_bench.workloads.record import flat_parameters
from bt_bench.workloads.steps import Append, Step, Workload

__all__ = [
    "DEFAULT_KIND",
    "KINDS",
    "MAX_REQS",
    "Append",
    "BatchParameters",
    "Description",
    "Distribution",
    "OfAnyKind",
    "Step",
    "StepFigures",
    "TableParameters",
    "TraceParameters",
    "UniformParameters",
    "Window",
    "Workload",
    "WorkloadParameters",
    "build_workload",
    "conformance_workloads",
    "estimate_bytes",
    "flat_parameters",
    "layout_of",
]
