"""The timeline of one step: a worker checks the variants, and traces those that passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bt_bench.base.errors import UsageError
from bt_bench.config import CaseSpec
from bt_bench.protocol import Operation, at_suite, built_record, ref_of_value
from bt_bench.results import Reason, Timeline, VariantTimeline, WorkloadRecord
from bt_bench.runs.preflight import check_conditions
from bt_bench.worker import CheckCase, Hello, Runner, TakeTimeline, TimelineParts, Watcher


@dataclass(frozen=True)
class TimelineRequest:
    """A request for the timeline of one step.

    Args:
        config: the config's name.
        case: the workload.
        operation: the operation to call.
        names: the variants.
        step: index of the step in its window, from 0; `None`: the last one.
    """

    config: str
    case: CaseSpec
    operation: Operation
    names: Sequence[str]
    step: int | None = None


def take_step_timeline(
    request: TimelineRequest, runner: Runner, hello: Hello, watcher: Watcher | None = None
) -> Timeline:
    """Trace the step of all variants that compute the right result, side by side.

    Args:
        request: the step and the variants.
        runner: runs tasks in the worker of the variants.
        hello: the worker's own description.
        watcher: receives the progress.

    Raises:
        UsageError: without a GPU, for a step that the window does not have, and where something
            makes times false.
        WorkerError: if the worker cannot do it.
    """
    if hello.device == "cpu":
        raise UsageError(
            "a timeline, and a trace, are of a GPU, and there is none here, or --device cpu was "
            "given; choose a GPU by --device, or use --tool static, which needs none"
        )
    check_conditions(hello.environment)
    parameters = request.case.parameters
    workload = at_suite(ref_of_value(parameters), built_record, parameters)
    step = step_of(request.case.name, workload, request.step)
    reasons = _checked(request, runner, watcher)
    right = [name for name in request.names if name not in reasons]
    finished = runner.run(TakeTimeline(request.case, request.operation, step), right, watcher)
    parts = finished.value
    reasons.update(finished.failed)
    reasons.update(parts.failed)
    required = workload.required_bytes.get(str(request.operation))
    return Timeline(
        config=request.config,
        case=request.case.name,
        operation=request.operation,
        step=step,
        num_steps=workload.num_steps,
        digest=workload.digest,
        required_bytes=None if required is None else required.read[step] + required.written[step],
        environment=hello.environment,
        source=parts.source,
        missing=parts.missing,
        seconds=parts.seconds,
        empty=parts.empty,
        variants=[_variant(name, parts, reasons) for name in request.names],
    )


def step_of(case: str, workload: WorkloadRecord, asked: int | None) -> int:
    """Return the index of a step in the window of a case, from 0.

    Args:
        case: its name.
        workload: the record of its workload.
        asked: the wanted index; `None`: the last one.

    Raises:
        UsageError: if the window has no such step.
    """
    count = workload.num_steps
    step = count - 1 if asked is None else asked
    if not 0 <= step < count:
        raise UsageError(
            f"step {step}: the window of case {case!r} has no such step; expected one from 0 to "
            f"{count - 1}"
        )
    return step


def _checked(
    request: TimelineRequest, runner: Runner, watcher: Watcher | None
) -> dict[str, Reason]:
    """Return why variants are not traced: they failed, or lack a feature."""
    finished = runner.run(
        CheckCase(request.case, (request.operation,)), list(request.names), watcher
    )
    reasons: dict[str, Reason] = dict(finished.failed)
    outcomes = finished.value.outcomes
    for name in request.names:
        if name not in reasons and (reason := outcomes[name, request.operation].reason):
            reasons[name] = reason
    return reasons


def _variant(name: str, parts: TimelineParts, reasons: Mapping[str, Reason]) -> VariantTimeline:
    reason = reasons.get(name)
    return VariantTimeline(
        name=name,
        nvtx_range=parts.ranges.get(name, ""),
        steps=[] if reason is not None else parts.steps.get(name, []),
        host=None if reason is not None else parts.host.get(name),
        reason=reason,
    )
