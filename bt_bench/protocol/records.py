"""Builds workloads, and records them as result files have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bt_bench.errors import UsageError
from bt_bench.protocol.parameters import WorkloadParameters
from bt_bench.protocol.workload import Workload
from bt_bench.results import ParameterValue, WorkloadRecord


def build_workload(parameters: WorkloadParameters) -> Workload:
    """Builds the workload; equal parameters give equal workloads.

    Raises:
        UsageError: for parameters that do not go together, files that cannot be read, and a
            workload without steps.
    """
    parameters.check()
    workload = parameters.build()
    if not len(workload.steps):
        raise UsageError(
            f"a workload of kind {parameters.workload!r} has no steps; expected one or more"
        )
    return workload


def record_of(parameters: WorkloadParameters, workload: Workload) -> WorkloadRecord:
    """Parameters, sizes per step, and the digest by which equal workloads are recognised."""
    return WorkloadRecord(
        kind=parameters.workload,
        parameters=flat_parameters(parameters),
        digest=workload.digest(),
        num_steps=len(workload.steps),
        sizes=dict(workload.sizes()),
    )


def flat_parameters(parameters: WorkloadParameters) -> dict[str, ParameterValue]:
    """Parameters by name, as a result file has them: those of a window as `window.steps`."""
    given = parameters.model_dump()
    del given["workload"]
    return dict(_flat(given))


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, ParameterValue]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value  # type: ignore[misc]  # the schema admits no other
