"""Building of workloads, and their records in result files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bt_bench.base.errors import UsageError
from bt_bench.base.names import Operation
from bt_bench.protocol.misspelt import misspelt
from bt_bench.protocol.owners import line_of, place_of, running, suite_of
from bt_bench.protocol.parameters import WorkloadParameters
from bt_bench.protocol.refs import SuiteRef, ref_of, ref_of_value, suite_at
from bt_bench.protocol.suite import Suite
from bt_bench.protocol.workload import Traffic, Workload
from bt_bench.results import ParameterValue, RequiredBytes, WorkloadRecord

if TYPE_CHECKING:
    import torch

    from bt_bench.protocol.driver import Driver

WorkloadT = TypeVar("WorkloadT", bound=Workload)


def build_workload(parameters: WorkloadParameters) -> Workload:
    """Build the workload; equal parameters give equal workloads.

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


def refuse_unseeded(parameters: WorkloadParameters, workload: Workload) -> None:
    """Build a workload once more, and refuse it if the two differ.

    Raises:
        UsageError: if they differ: cases could never be compared.
    """
    suite = suite_of(parameters)
    if _digest_of(suite, build_workload(parameters)) != _digest_of(suite, workload):
        kind = type(parameters)
        raise UsageError(
            f"{line_of(suite, kind.build, kind)}: build of kind {parameters.workload!r} gave two "
            "different workloads for the same parameters; expected equal ones: take every random "
            "number from a generator that a parameter seeds"
        )


def built_record(parameters: WorkloadParameters) -> WorkloadRecord:
    """Build the workload and return its record; call this where its suite runs."""
    return record_of(parameters, build_workload(parameters))


def features_of_conformance(ref: SuiteRef, seed: int) -> dict[str, frozenset[str]]:
    """Return the features that each conformance workload needs, by its name; call this likewise."""
    suite: Suite = suite_at(ref)
    with running(suite, "conformance"):
        workloads = dict(suite.conformance(seed))
    for workload in workloads.values():
        check_workload(suite, workload)
    return {name: frozenset(workload.features) for name, workload in workloads.items()}


def check_workload(suite: Suite, workload: Workload) -> None:
    """Refuse a workload whose parts do not have the protocol's form.

    Raises:
        UsageError: naming the class and its defect.
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
    with running(suite, "steps of the workload"):
        num_steps = len(workload.steps)
    with running(suite, "sizes"):
        sizes = {name: list(values) for name, values in workload.sizes().items()}
    for problem in _wrong_sizes(sizes, num_steps):
        place = f"{line_of(suite, kind.sizes, kind)}: {kind.__name__}.sizes"
        raise UsageError(f"{place} has {problem}")


def _wrong_sizes(sizes: Mapping[str, Sequence[Any]], num_steps: int) -> Iterator[str]:
    for name, values in sizes.items():
        if len(values) != num_steps:
            yield f"{len(values)} values of {name!r}; expected one for each of {num_steps} steps"
        for value in values:
            if _whole(value) is None:
                yield f"{value!r} as {name!r}; expected whole numbers"


def varied_workload(suite: Suite, workload: WorkloadT, rng: np.random.Generator) -> WorkloadT:
    """Return the workload with other contents.

    Raises:
        UsageError: if the result has another class or another number of steps.
    """
    kind = type(workload)
    with running(suite, "varied"):
        varied = workload.varied(rng)
    if not isinstance(varied, kind):
        problem = f"returned {type(varied).__name__}; expected a {kind.__name__}"
    elif len(varied.steps) != len(workload.steps):
        problem = f"has {len(varied.steps)} steps; expected {len(workload.steps)}, as the workload"
    else:
        return varied
    raise UsageError(f"{line_of(suite, kind.varied, kind)}: varied {problem}")


def is_varied(suite: Suite, workload: Workload, rng: np.random.Generator) -> bool:
    """Return whether a workload's `varied` changes its contents; `True` if it does not define it.

    A digest of the suite's own need not reflect contents, and a conformance workload need not have
    one; then any other object counts as varied.
    """
    kind = type(workload)
    if kind.varied is Workload.varied:
        return True
    varied = varied_workload(suite, workload, rng)
    if varied is workload or kind.digest is not Workload.digest:
        return varied is not workload
    try:
        return varied.digest() != workload.digest()
    except TypeError:
        return True


def inputs_of_steps(
    suite: Suite, driver: type[Driver], device: torch.device, workload: Workload
) -> Sequence[Any]:
    """Return the inputs of each step of a workload on a device.

    Exceptions of `inputs_on` are passed on: on a GPU, earlier work may have caused them.

    Raises:
        UsageError: unless there is one for each step.
    """
    inputs = driver.inputs_on(device, workload)
    is_list = hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__")
    count = len(inputs) if is_list else None
    if count != len(workload.steps):
        found = type(inputs).__name__ if count is None else f"{count} inputs"
        raise UsageError(
            f"{line_of(suite, driver.inputs_on, driver)}: inputs_on of {driver.__name__} returned "
            f"{found}; expected a list with one for each of {len(workload.steps)} steps"
        )
    return inputs


def num_bytes_of(parameters: WorkloadParameters) -> int:
    """Return `num_bytes` of parameters.

    Raises:
        UsageError: unless it is a number of 0 or more.
    """
    return _count(parameters, parameters.num_bytes)


def num_programs_of(parameters: WorkloadParameters) -> int:
    """Return `num_programs` of parameters; see `num_bytes_of`."""
    return _count(parameters, parameters.num_programs)


def _count(parameters: WorkloadParameters, method: Callable[[], int]) -> int:
    suite = suite_of(parameters)
    name = method.__name__
    with running(suite, f"{name} of the parameters"):
        found = method()
    value = _number(found)
    if value is None or value < 0:
        raise UsageError(
            f"{line_of(suite, method, type(parameters))}: {name} of kind {parameters.workload!r} "
            f"returned {found!r}; expected a number of 0 or more"
        )
    return int(value)


def _whole(value: object) -> int | None:
    """Return a number as an integer; `None` for anything else, such as 0.5, NaN or text."""
    found = _number(value)
    return int(found) if found is not None and int(found) == found else None


def _number(value: Any) -> int | float | None:
    """Return a finite number; `None` for anything else. NumPy's numbers are numbers too."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def record_of(parameters: WorkloadParameters, workload: Workload) -> WorkloadRecord:
    """Return a workload's parameters, sizes and required bytes per step, and digest, as a record.

    Equal workloads have equal digests.

    Raises:
        UsageError: for a `traffic` that is not a number of bytes for each step.
    """
    suite = suite_of(parameters)
    return WorkloadRecord(
        kind=parameters.workload,
        parameters=flat_parameters(parameters),
        digest=_digest_of(suite, workload),
        num_steps=len(workload.steps),
        sizes={name: [int(value) for value in values] for name, values in workload.sizes().items()},
        required_bytes={
            str(operation): RequiredBytes(
                read=[each.read for each in steps], written=[each.written for each in steps]
            )
            for operation, steps in traffic_by_operation(suite, workload)
            if not operation.traits.on_host
        },
        remarks=[str(remark) for remark in workload.remarks],
    )


def _digest_of(suite: Suite, workload: Workload) -> str:
    with running(suite, "digest"):
        return workload.digest()


def traffic_by_operation(
    suite: Suite, workload: Workload
) -> Iterator[tuple[Operation, list[Traffic]]]:
    """Yield, per operation, the bytes that a call must move in each step, where the suite knows.

    Raises:
        UsageError: unless it is a number of bytes, 0 or more, for each step.
    """
    for operation in suite.operations:
        with running(suite, "traffic"):
            steps = workload.traffic(operation)
        if not steps:
            continue
        with running(suite, "traffic"):
            numbers = [(_whole(each.read), _whole(each.written)) for each in steps]
        known = [
            Traffic(read, written)
            for read, written in numbers
            if read is not None and written is not None and min(read, written) >= 0
        ]
        if not len(known) == len(steps) == len(workload.steps):
            raise UsageError(
                f"{line_of(suite, type(workload).traffic, type(workload))}: traffic of {operation} "
                f"is {steps[:3]!r}…; expected one for each of {len(workload.steps)} steps, of 0 "
                "bytes or more"
            )
        yield operation, known


def flat_parameters(parameters: WorkloadParameters) -> dict[str, ParameterValue]:
    """Return parameters by name, as in a result file: nested ones as `window.steps`."""
    given = parameters.model_dump()
    del given["workload"]
    return dict(_flat(given))


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, ParameterValue]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value  # type: ignore[misc]  # the schema admits no other
