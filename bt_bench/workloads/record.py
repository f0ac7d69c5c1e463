"""The record of a workload in a result file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bt_bench.results import ParameterValue, WorkloadRecord
from bt_bench.workloads.kind import WorkloadParameters
from bt_bench.workloads.steps import Workload


def record(parameters: WorkloadParameters, workload: Workload) -> WorkloadRecord:
    """Parameters, sizes per step, and the digest by which equal workloads are recognised."""
    return WorkloadRecord(
        kind=parameters.workload,
        parameters=flat_parameters(parameters),
        digest=workload.digest(),
        num_steps=len(workload.steps),
        num_reqs=[step.num_reqs for step in workload.steps],
        num_tokens=[step.num_tokens for step in workload.steps],
        num_rows_written=[step.num_rows_written for step in workload.steps],
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
