"""From validated parameters to a workload."""

from __future__ import annotations

from bt_bench.workloads.kind import WorkloadParameters
from bt_bench.workloads.steps import Workload


def build_workload(parameters: WorkloadParameters) -> Workload:
    """Builds the workload; equal parameters give equal workloads.

    Raises:
        UsageError: for parameters that do not go together; for a trace that cannot be read or
            served, or whose sequence ends before the window does.
    """
    parameters.check()
    return parameters.build()
