"""Workloads: the exact steps of a case, synthetic or from a trace."""

from __future__ import annotations

from bt_bench.workloads.assemble import layout_of
from bt_bench.workloads.build import (
    build_workload,
    estimate_bytes,
    features_of,
    validate_parameters,
)
from bt_bench.workloads.conformance.plain import conformance_workloads
from bt_bench.workloads.describe import Description, Distribution, StepFigures
from bt_bench.workloads.parameters import (
    MAX_REQS,
    BatchParameters,
    TableParameters,
    TraceParameters,
    UniformParameters,
    WorkloadParameters,
)
from bt_bench.workloads.record import flat_parameters
from bt_bench.workloads.serving.trace import BUNDLED_TRACES
from bt_bench.workloads.steps import Append, Step, Workload

__all__ = [
    "BUNDLED_TRACES",
    "MAX_REQS",
    "Append",
    "BatchParameters",
    "Description",
    "Distribution",
    "Step",
    "StepFigures",
    "TableParameters",
    "TraceParameters",
    "UniformParameters",
    "Workload",
    "WorkloadParameters",
    "build_workload",
    "conformance_workloads",
    "estimate_bytes",
    "features_of",
    "flat_parameters",
    "layout_of",
    "validate_parameters",
]
