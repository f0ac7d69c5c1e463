"""Builds workloads, and records them as result files have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

import numpy as np

from bt_bench.errors import UsageError
from bt_bench.names import Operation
from bt_bench.protocol.loading import (
    SuiteRef,
    load_suite,
    place_of,
    ref_of,
    ref_of_value,
    running,
    suite_of,
)
from bt_bench.protocol.misspelt import misspelt
from bt_bench.protocol.parameters import WorkloadParameters
from bt_bench.protocol.suite import Suite
from bt_bench.protocol.workload import Traffic, Workload
from bt_bench.results import ParameterValue, RequiredBytes, WorkloadRecord

WorkloadT = TypeVar("WorkloadT", bound=Workload)


def build_workload(parameters: WorkloadParameters) -> Workload:
    """Builds the workload; equal parameters give equal workloads.

    Raises:
        UsageError: for parameters that do not go together, files that cannot be read, and a
            workload without steps.
    """
    suite = suite_of(parameters)
    with running(suite, "check of the parameters"):
        parameters.check()
    with running(suite, "build"):
        workload = parameters.build()
    if not isinstance(workload, Workload):
        raise UsageError(
            f"{place_of(suite)}: build of kind {parameters.workload!r} returned "
            f"{type(workload).__name__}; expected a Workload"
        )
    check_workload(suite, workload)
    if not len(workload.steps):
        raise UsageError(
            f"a workload of kind {parameters.workload!r} has no steps; expected one or more"
        )
    return workload


def built_record(parameters: WorkloadParameters) -> WorkloadRecord:
    """Build the workload and return what is recorded of it; to be called where its suite is."""
    return record_of(parameters, build_workload(parameters))


def features_of_conformance(ref: SuiteRef, seed: int) -> dict[str, frozenset[str]]:
    """Return the features that each conformance workload needs, by its name; likewise."""
    suite = load_suite(ref)
    with running(suite, "conformance"):
        workloads = dict(suite.conformance(seed))
    for workload in workloads.values():
        check_workload(suite, workload)
    return {name: frozenset(workload.features) for name, workload in workloads.items()}


def check_workload(suite: Suite, workload: Workload) -> None:
    """Refuses a workload whose parts have other forms than the protocol's.

    Raises:
        UsageError: naming the class and what is wrong with it.
    """
    kind = type(workload)
    where = f"{place_of(suite)}: {kind.__name__}"
    if ref_of(kind) != ref_of_value(suite):
        raise UsageError(
            f"{where} is of suite {ref_of(kind).name!r}, which would drive it; expected a class of "
            "this suite's own modules"
        )
    for problem in misspelt(kind, Workload):
        raise UsageError(f"{place_of(suite)}: {problem}")
    with running(suite, "features of the workload"):
        features = workload.features
    if not isinstance(features, frozenset | set):
        raise UsageError(
            f"{where}.features is {features!r}; expected a frozenset, as a property or a field"
        )
    with running(suite, "sizes"):
        sizes = {name: len(values) for name, values in workload.sizes().items()}
    for name, count in sizes.items():
        if count != len(workload.steps):
            raise UsageError(
                f"{where}.sizes has {count} values of {name!r}; expected one for each of "
                f"{len(workload.steps)} steps"
            )


def varied_workload(workload: WorkloadT, rng: np.random.Generator) -> WorkloadT:
    """The workload with other contents.

    Raises:
        UsageError: if it has another number of steps then.
    """
    suite = suite_of(workload)
    with running(suite, "varied"):
        varied = workload.varied(rng)
    if len(varied.steps) != len(workload.steps):
        raise UsageError(
            f"{place_of(suite)}: varied has {len(varied.steps)} steps; expected "
            f"{len(workload.steps)}, as the workload"
        )
    return varied


def record_of(parameters: WorkloadParameters, workload: Workload) -> WorkloadRecord:
    """Parameters, sizes and required bytes per step, and the digest that equal workloads share.

    Raises:
        UsageError: for a `traffic` of other numbers than bytes of each step.
    """
    return WorkloadRecord(
        kind=parameters.workload,
        parameters=flat_parameters(parameters),
        digest=workload.digest(),
        num_steps=len(workload.steps),
        sizes=dict(workload.sizes()),
        required_bytes={
            str(operation): RequiredBytes(
                read=[each.read for each in steps], written=[each.written for each in steps]
            )
            for operation, steps in traffic_by_operation(suite_of(parameters), workload)
            if not operation.traits.on_host
        },
    )


def traffic_by_operation(
    suite: Suite, workload: Workload
) -> Iterator[tuple[Operation, list[Traffic]]]:
    """Per operation what one call must move in each step, where the suite knows it.

    Raises:
        UsageError: unless it is a number of bytes, 0 or more, for each step.
    """
    for operation in suite.operations:
        with running(suite, "traffic"):
            steps = workload.traffic(operation)
        if not steps:
            continue
        if len(steps) != len(workload.steps) or any(
            each.read < 0 or each.written < 0 for each in steps
        ):
            raise UsageError(
                f"{place_of(suite)}: traffic of {operation} is {steps[:3]!r}…; expected one for "
                f"each of {len(workload.steps)} steps, of 0 bytes or more"
            )
        yield operation, steps


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
