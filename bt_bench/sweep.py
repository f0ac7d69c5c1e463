"""The sweep loop: for each case check, then measure, then store."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from bt_bench import __version__
from bt_bench.catalogue import VariantEntry
from bt_bench.checking.check import PATHS, Verdict, check
from bt_bench.checking.spec import check_conformance
from bt_bench.config.load import dump_config
from bt_bench.config.schema import CaseSpec, SweepSpec
from bt_bench.errors import UsageError
from bt_bench.measuring.case import Bench, Measured, measure_case
from bt_bench.model import (
    CaseResult,
    Environment,
    Operation,
    Reason,
    ReasonCode,
    Status,
    Tool,
    VariantInfo,
    VariantResult,
    WorkloadRecord,
)
from bt_bench.report.markdown import render_comparison
from bt_bench.store import CONFIG_NAME, RunFolder, read_run, write_result, write_text
from bt_bench.units import format_bytes
from bt_bench.workloads.build import build_workload, estimate_bytes, layout_of
from bt_bench.workloads.parameters import TraceParameters
from bt_bench.workloads.record import flat_parameters, record
from bt_bench.workloads.steps import Workload

# What an instance of a variant holds: its tables, and a snapshot of them.
COPIES_PER_INSTANCE = 2
# What a check holds beside the variants: the reference and what is expected, both in int64.
COPIES_OF_REFERENCE = 4


class Progress(Protocol):
    """Hears how far a sweep is."""

    def start(self, num_cases: int) -> None:
        """A sweep of so many cases (workload × operation) begins."""
        ...

    def phase(self, case: str, what: str) -> None:
        """A case enters a phase: building, checking, measuring."""
        ...

    def round(self, done: int, rounds: int) -> None:
        """So many of the case's rounds are done."""
        ...

    def finish_case(self, case: str, failed: Sequence[str]) -> None:
        """A case is stored; these variants failed it."""
        ...


@dataclass(frozen=True)
class SweepRequest:
    """What to sweep, with what, and where to.

    Args:
        spec: cases, operations and plan.
        entries: the variants, in the order of the report.
        classes: their classes by name.
        bench: the device.
        environment: as read before the run.
        folder: where the results go; may hold those of an interrupted run.
        command: the command line, for the record.
    """

    spec: SweepSpec
    entries: Sequence[VariantEntry]
    classes: Mapping[str, type[Any]]
    bench: Bench
    environment: Environment
    folder: RunFolder
    command: list[str]


class Results:
    """The results of a run while it grows; every change is on disk before the next."""

    def __init__(self, request: SweepRequest, earlier: Sequence[VariantResult]) -> None:
        self._folder = request.folder
        self._total = len(request.spec.cases) * len(request.spec.operations)
        found = {result.variant.name: result for result in earlier}
        run_id = earlier[0].run_id if earlier else _new_run_id(request.spec.name)
        self._by_variant = {
            entry.name: found.get(entry.name) or _empty_result(request, entry, run_id)
            for entry in request.entries
        }
        for result in self._by_variant.values():
            write_result(self._folder, result)

    def all(self) -> list[VariantResult]:
        """The results so far, in the order of the variants."""
        return list(self._by_variant.values())

    def has(self, key: str) -> bool:
        """Whether every variant has this case."""
        return all(
            any(case.key == key for case in result.cases) for result in self._by_variant.values()
        )

    def add(self, cases: Mapping[str, CaseResult]) -> None:
        """Stores one case of every variant; one that an interrupted run left is replaced."""
        for name, case in cases.items():
            result = self._by_variant[name]
            kept = [old for old in result.cases if old.key != case.key]
            self._replace(name, result.model_copy(update={"cases": [*kept, case]}))

    def close(self, complete: bool) -> None:
        """Marks the run as complete, or not, and writes the comparison."""
        for name, result in self._by_variant.items():
            self._replace(name, result.model_copy(update={"complete": complete}))
        text = render_comparison(self.all(), planned_cases=self._total)
        write_text(self._folder.comparison_path, text)

    def _replace(self, name: str, result: VariantResult) -> None:
        write_result(self._folder, result)
        self._by_variant[name] = result


def run_sweep(request: SweepRequest, progress: Progress) -> list[VariantResult]:
    """Sweeps; whatever ends it, what was measured is in the folder and says if it is complete.

    Returns:
        One result per variant.

    Raises:
        UsageError: when a case would not fit into memory, before anything is run.
    """
    spec = request.spec
    write_text(request.folder.path / CONFIG_NAME, dump_config(spec))
    results = Results(request, read_run(request.folder))
    progress.start(len(spec.cases) * len(spec.operations))
    complete = False
    try:
        failures = _failures(request, progress)
        for case in spec.cases:
            _run_case(request, case, failures, results, progress)
        complete = True
    finally:
        results.close(complete)
    return results.all()


def check_memory(spec: SweepSpec, num_arms: int, available: int | None) -> None:
    """Refuses cases that would not fit.

    Raises:
        UsageError: naming the first such case, what it would need and what there is.
    """
    for case in spec.cases:
        measuring = num_arms * spec.plan.instances * COPIES_PER_INSTANCE
        paths = len({PATHS[operation] for operation in spec.operations})
        copies = max(measuring, num_arms * paths) + COPIES_OF_REFERENCE
        needed = estimate_bytes(layout_of(case.parameters)) * copies
        if available is not None and needed > available:
            raise UsageError(
                f"case {case.name!r} would need {format_bytes(needed)} of memory for "
                f"{spec.plan.instances} instances of {num_arms} variants; "
                f"{format_bytes(available)} are available. Use smaller max_num_reqs, "
                "max_model_len or groups, fewer variants or plan.instances, or leave it out with -k"
            )


def check_resumable(
    folder: RunFolder,
    spec: SweepSpec,
    entries: Sequence[VariantEntry],
    environment: Environment,
) -> None:
    """Refuses to continue a run with something else than it was started with.

    Raises:
        UsageError: naming what differs.
    """
    earlier = read_run(folder)
    sources = {entry.name: entry.source_sha256() for entry in entries}
    for result in earlier:
        name = result.variant.name
        if name not in sources:
            raise UsageError(f"{folder.result_path(name)}: variant {name!r} is not in the config")
        if result.variant.source_sha256 != sources[name]:
            raise UsageError(
                f"{folder.path}: the source of variant {name!r} (or of bt_kernels) has changed "
                "since; start a new run"
            )
        if result.plan != spec.plan:
            raise UsageError(f"{folder.result_path(name)}: has another plan; start a new run")
        _refuse_changed_cases(folder.result_path(name), result, spec)
        for what in ("device", "bt_bench", "torch", "triton", "cuda", "driver", "gpus"):
            then, now = _fact(result.environment, what), _fact(environment, what)
            if then != now:
                raise UsageError(
                    f"{folder.path} was started with {what} {then}, this is {now}; start a new run"
                )


def _refuse_changed_cases(path: Path, result: VariantResult, spec: SweepSpec) -> None:
    """Cases that are done must be those of the config."""
    wanted = {case.name: flat_parameters(case.parameters) for case in spec.cases}
    for case in result.cases:
        if case.workload.parameters != wanted.get(case.case):
            raise UsageError(
                f"{path}: case {case.case!r} was measured with other parameters than {CONFIG_NAME} "
                "has now; put the config back, or start a new run"
            )


def check_windows(spec: SweepSpec) -> None:
    """Refuses windows of a trace that begin at a step that its sequence does not have.

    Other windows are where they fit; how long a sequence is, only the scheduler can tell.

    Raises:
        UsageError: naming the first such case.
    """
    for case in spec.cases:
        parameters = case.parameters
        if isinstance(parameters, TraceParameters) and isinstance(parameters.window.at, int):
            try:
                build_workload(parameters)
            except UsageError as error:
                raise UsageError(f"case {case.name!r}: {error}") from error


def _fact(environment: Environment, what: str) -> object:
    """A fact about the environment that does not change while it is idle or busy."""
    if what == "gpus":
        return [f"{gpu.name} ({gpu.capability})" for gpu in environment.gpus]
    return getattr(environment, what)


def _failures(request: SweepRequest, progress: Progress) -> dict[str, Reason]:
    """Variants that fail on the conformance workloads, with the reason."""
    progress.phase("conformance", "checking")
    failures: dict[str, Reason] = {}
    for outcome in check_conformance(request.spec, request.classes, request.bench.device):
        if outcome.reason is not None:
            failures.setdefault(outcome.variant, outcome.reason)
    return failures


def _run_case(
    request: SweepRequest,
    case: CaseSpec,
    failures: Mapping[str, Reason],
    results: Results,
    progress: Progress,
) -> None:
    operations = [o for o in request.spec.operations if not results.has(case_key(o, case.name))]
    if not operations:
        for operation in request.spec.operations:
            progress.finish_case(case_key(operation, case.name), [])
        return
    progress.phase(case.name, "building")
    workload = build_workload(case.parameters)
    progress.phase(case.name, "checking")
    verdicts = _verdicts(request, case, workload, operations, failures)
    workload_record = record(case.parameters, workload)
    for operation in operations:
        key = case_key(operation, case.name)
        progress.phase(key, "measuring")
        measured = _measure(request, case, workload, operation, verdicts, progress)
        stored = {
            entry.name: _case_result(
                case,
                operation,
                workload_record,
                verdicts[entry.name, operation],
                measured.get(entry.name),
            )
            for entry in request.entries
        }
        results.add(stored)
        failed = [name for name, result in stored.items() if result.status is Status.FAILED]
        progress.finish_case(key, failed)


def _verdicts(
    request: SweepRequest,
    case: CaseSpec,
    workload: Workload,
    operations: Sequence[Operation],
    failures: Mapping[str, Reason],
) -> dict[tuple[str, Operation], Verdict]:
    """Outcome of the check per variant and operation; one that failed before is not run again."""
    verdicts = {
        (name, operation): Verdict(None, reason)
        for name, reason in failures.items()
        for operation in operations
    }
    plan = request.spec.plan
    verdicts |= check(
        {name: v for name, v in request.classes.items() if name not in failures},
        workload,
        operations,
        request.bench.device,
        rounds=plan.check_rounds,
        seed=plan.seed,
        title=case.name,
    )
    return verdicts


def _measure(
    request: SweepRequest,
    case: CaseSpec,
    workload: Workload,
    operation: Operation,
    verdicts: Mapping[tuple[str, Operation], Verdict],
    progress: Progress,
) -> dict[str, Measured]:
    """Measurements of the variants that passed the check."""
    passed = {
        name: variant
        for name, variant in request.classes.items()
        if verdicts[name, operation].reason is None
    }
    plan = request.spec.plan
    on_round: Callable[[int], None] = lambda done: progress.round(done, plan.rounds)  # noqa: E731
    return measure_case(case.name, passed, workload, operation, plan, request.bench, on_round)


def _case_result(
    case: CaseSpec,
    operation: Operation,
    workload: WorkloadRecord,
    verdict: Verdict,
    measured: Measured | None,
) -> CaseResult:
    measured = measured or Measured()
    reason = verdict.reason or measured.reason
    incomplete = reason is not None and reason.code is ReasonCode.PROFILER_INCOMPLETE
    return CaseResult(
        key=case_key(operation, case.name),
        case=case.name,
        operation=operation,
        workload=workload,
        status=Status.OK if reason is None or incomplete else Status.FAILED,
        reason=reason,
        check=verdict.report,
        launches=measured.launches,
        measurements=measured.measurements,
    )


def case_key(operation: Operation, case: str) -> str:
    """Key of a case in a result file."""
    return f"{operation.value}/{case}"


def _new_run_id(config: str) -> str:
    """An id that no other run has: results with one id were measured side by side."""
    return f"{config}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def _empty_result(request: SweepRequest, entry: VariantEntry, run_id: str) -> VariantResult:
    return VariantResult(
        run_id=run_id,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        complete=False,
        tool=Tool(version=__version__, command=request.command),
        environment=request.environment,
        config=request.spec.name,
        plan=request.spec.plan,
        variant=VariantInfo(
            name=entry.name, summary=entry.summary, source_sha256=entry.source_sha256()
        ),
        cases=[],
    )
