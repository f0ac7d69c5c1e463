"""A sweep config after its axes are expanded: one `CaseSpec` per workload."""

from __future__ import annotations

from bt_bench.model import Noun, Plan
from bt_bench.operation import Operation
from bt_bench.workloads.parameters import WorkloadParameters


class CaseSpec(Noun):
    """One workload to sweep: a unique name, and its parameters."""

    name: str
    parameters: WorkloadParameters


class SweepSpec(Noun):
    """A whole config, expanded and validated."""

    name: str
    description: str = ""
    variants: list[str]
    operations: list[Operation]
    plan: Plan
    cases: list[CaseSpec]
