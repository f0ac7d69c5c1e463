"""A sweep config after its axes are expanded: one `CaseSpec` per workload."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SerializeAsAny

from bt_bench.base.names import FailOn
from bt_bench.protocol import Operation, SuiteRef, WorkloadParameters
from bt_bench.results import Noun, Plan

Share = Annotated[float, Field(gt=0, le=100)]


class CaseSpec(Noun):
    """One workload to sweep: a unique name, its parameters, and perhaps a margin of its own.

    A change of the case by up to `margin_percent` counts as none.
    """

    name: str
    parameters: SerializeAsAny[WorkloadParameters]
    margin_percent: Share | None = None


class GateSpec(Noun):
    """The `gate:` section of a config: how revisions are compared.

    A field that is `None` or empty takes its default.
    """

    metrics: list[Annotated[str, Field(min_length=1)]] = Field(
        default=[], description="metrics, or patterns of them"
    )
    margin_percent: Share | None = Field(
        default=None, description="a change up to this counts as none"
    )
    detect_percent: Share | None = Field(
        default=None, description="a slowdown of this size is to be found"
    )
    alpha: Annotated[float, Field(gt=0, le=0.5)] | None = Field(
        default=None, description="probability of any false verdict in a gate"
    )
    fail_on: list[FailOn] = Field(default=[], description="verdicts that fail a gate")
    looks: list[Annotated[int, Field(ge=3, le=1000)]] = Field(
        default=[],
        description="process-rounds after which verdicts are looked for, rising",
    )


class SweepSpec(Noun):
    """A whole config, expanded and validated; paths in it are absolute.

    `kernels` lists the folders of variants.
    """

    name: str
    description: str = ""
    suite: SuiteRef = SuiteRef()
    kernels: list[str] = Field(default=[])
    variants: list[str]
    operations: list[Operation]
    plan: Plan
    gate: GateSpec = GateSpec()
    cases: list[CaseSpec]

    @property
    def margins(self) -> dict[str, float]:
        """Margins of the cases that have their own, as shares, by case name."""
        return {
            case.name: case.margin_percent / 100
            for case in self.cases
            if case.margin_percent is not None
        }
