"""The sweep loop: for each case check, then measure, then store.

Everything that needs a device is done by a `Runner`: this module imports neither torch nor Triton.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bt_bench import __version__
from bt_bench.config import CaseSpec, SweepSpec, dump_config
from bt_bench.protocol import Operation, info_of, load_suite
from bt_bench.report import arms_document, arrange, render_document, render_page, run_page
from bt_bench.results import (
    CONFIG_NAME,
    CaseResult,
    Crash,
    Division,
    Environment,
    Reason,
    ReasonCode,
    ResultWriter,
    RunFolder,
    Status,
    Tool,
    VariantInfo,
    VariantResult,
    condition_texts,
    fallback_texts,
    read_run,
    read_written,
    write_division,
    write_run_file,
)
from bt_bench.runs.check import check_conformance
from bt_bench.runs.progress import CaseReport, Progress
from bt_bench.variants import VariantEntry
from bt_bench.worker import (
    Calibrate,
    CheckCase,
    Checked,
    CheckOutcome,
    CheckOutcomes,
    MeasureCase,
    Measured,
    Noticing,
    Runner,
)


@dataclass(frozen=True)
class SweepRequest:
    """The cases, variants and folder of a sweep.

    Args:
        spec: cases, operations and plan.
        entries: the variants, in the order of the report.
        environment: as read before the run.
        folder: where the results go; may hold those of an interrupted run.
        command: the command line, for the record.
        native: by variant, whether it uses the helpers in C; see `VariantInfo`.
        division: if the cases are a shard of a sweep, the division of all of them.
    """

    spec: SweepSpec
    entries: Sequence[VariantEntry]
    environment: Environment
    folder: RunFolder
    command: list[str]
    native: Mapping[str, bool] = field(default_factory=dict)
    division: Division | None = None

    @property
    def arms(self) -> list[str]:
        """Names of the variants."""
        return [entry.name for entry in self.entries]

    @property
    def keys(self) -> list[str]:
        """Keys of all cases, in the config's order."""
        return [
            case_key(operation, case.name)
            for case in self.spec.cases
            for operation in self.spec.operations
        ]


class Results:
    """The results of a running sweep; cases are only on disk, each stored before the next begins.

    Args:
        request: the run.
    """

    def __init__(self, request: SweepRequest) -> None:
        self._request = request
        earlier = {result.variant.name: result for result in read_run(request.folder)}
        run_ids = [result.run_id for result in earlier.values()]
        run_id = run_ids[0] if run_ids else _new_run_id(request.spec.name)
        self._writers = {
            entry.name: ResultWriter(
                request.folder,
                earlier.get(entry.name) or _empty_result(request, entry, run_id),
            )
            for entry in request.entries
        }

    @property
    def is_calibrated(self) -> bool:
        """Return whether every result has a calibration."""
        return all(writer.header.calibration for writer in self._writers.values())

    def calibrate(self, runner: Runner) -> None:
        """Calibrate, and store the calibration in every result."""
        calibration = runner.run(Calibrate(), ()).value
        for writer in self._writers.values():
            writer.calibrate(calibration)

    def note(self, arms: Sequence[str], crash: Crash) -> None:
        """Store a crash in the results of these arms, or of all arms if none took part."""
        for name in arms or self._writers:
            self._writers[name].note(crash)

    def num_done(self) -> int:
        """Return the number of cases that every variant has."""
        return sum(self.has(key) for key in self._request.keys)

    def has(self, key: str) -> bool:
        """Return whether every variant has this case."""
        return all(key in writer.keys for writer in self._writers.values())

    def add(self, cases: Mapping[str, CaseResult]) -> None:
        """Store one case of every variant; one that an interrupted run left is replaced."""
        for name, case in cases.items():
            self._writers[name].add(case)

    def close(self, complete: bool) -> list[VariantResult]:
        """Mark the run as complete or partial, write the comparison, and return all results."""
        keys = self._request.keys
        digests = {name: writer.close(complete, keys) for name, writer in self._writers.items()}
        folder = self._request.folder
        results = [read_written(folder.result_path(name), digests[name]) for name in digests]
        arms = arrange(results)
        text = render_document(arms_document(arms, len(keys), results))
        write_run_file(folder.comparison_path, text)
        write_run_file(folder.page_path, render_page(run_page(arms, len(keys))))
        return results


def run_sweep(request: SweepRequest, runner: Runner, progress: Progress) -> list[VariantResult]:
    """Run a sweep; whatever ends it, its results are in the folder, marked complete or partial.

    Cases, and the operations of a case, are taken in random order; drift of the machine then hits
    all kinds of them. Results are in the config's order.

    Args:
        request: the sweep.
        runner: has the variants and the device.
        progress: receives the progress.

    Returns:
        One result per variant.
    """
    spec = request.spec
    write_plan(request.folder, spec, request.division)
    results = Results(request)
    runner = Noticing(runner, results.note)
    progress.start(len(request.keys), results.num_done(), "cases")
    environment = request.environment
    conditions = condition_texts(environment.conditions)
    for text in (*conditions, *fallback_texts(environment.helpers)):
        progress.say(f"warning: {text}")
    rng = random.Random(spec.plan.seed)
    complete = False
    try:
        if not results.is_calibrated:
            progress.phase("calibrating the harness")
            results.calibrate(runner)
        failures = _failures(request, runner, progress)
        for case in rng.sample(spec.cases, len(spec.cases)):
            operations = rng.sample(spec.operations, len(spec.operations))
            missing = [o for o in operations if not results.has(case_key(o, case.name))]
            if missing:
                sweep_case = _CaseSweep(request, runner, progress, case, failures)
                sweep_case.run(missing, results)
        complete = True
    finally:
        closed = results.close(complete)
    return closed


def write_plan(folder: RunFolder, spec: SweepSpec, division: Division | None) -> None:
    """Write the plan of a run into its folder: the config, and for a shard the whole division.

    Raises:
        UsageError: if a file cannot be written.
    """
    if division is not None:  # first: a config alone would be one of a whole sweep
        write_division(folder.path, division)
    write_run_file(folder.path / CONFIG_NAME, dump_config(spec, folder.path))


def _failures(request: SweepRequest, runner: Runner, progress: Progress) -> dict[str, Reason]:
    """Return the variants that fail on the conformance workloads, with the reason."""
    progress.phase("checking the variants on the conformance workloads")
    failures: dict[str, Reason] = {}
    for outcome in check_conformance(runner, request.spec, request.arms, progress):
        if outcome.failure is not None and outcome.variant not in failures:
            failures[outcome.variant] = outcome.failure
            progress.say(
                f"{outcome.variant}: FAILED, and so will all of its cases, which are not run: "
                f"{outcome.failure.code}: {outcome.failure.message}"
            )
    return failures


@dataclass(frozen=True)
class _CaseSweep:
    """One case of a sweep, with the variants that have failed before it."""

    request: SweepRequest
    runner: Runner
    progress: Progress
    case: CaseSpec
    failures: Mapping[str, Reason]

    def run(self, operations: Sequence[Operation], results: Results) -> None:
        """Check and measure some operations, and store each when it is done."""
        self.progress.phase("checking", self.case.name)
        began = time.monotonic()
        checked = self._check(operations)
        share_s = (time.monotonic() - began) / len(operations)
        for remark in checked.workload.remarks:
            self.progress.say(f"{self.case.name}: {remark}")
        for operation in operations:
            key = case_key(operation, self.case.name)
            self.progress.phase("measuring", key)
            began = time.monotonic()
            measured = self._measure(operation, checked.outcomes)
            seconds = round(share_s + time.monotonic() - began, 3)
            outcomes = {arm: checked.outcomes[arm, operation] for arm in self.request.arms}
            stored = {
                arm: _case_result(self.case, operation, checked, outcome, measured[arm], seconds)
                for arm, outcome in outcomes.items()
            }
            results.add(stored)
            self.progress.advance(_report(key, stored, self.failures))

    def _check(self, operations: Sequence[Operation]) -> Checked:
        """Check each variant and operation; variants that failed before are not run."""
        arms = [arm for arm in self.request.arms if arm not in self.failures]
        task = CheckCase(self.case, tuple(operations))
        finished = self.runner.run(task, arms, self.progress)
        failed = {
            (arm, operation): CheckOutcome(None, reason)
            for arm, reason in ({**self.failures, **finished.failed}).items()
            for operation in operations
        }
        return Checked(finished.value.workload, finished.value.outcomes | failed)

    def _measure(self, operation: Operation, outcomes: CheckOutcomes) -> dict[str, Measured]:
        """Measure the variants that passed the check; the others get no measurements."""
        passed = [arm for arm in self.request.arms if outcomes[arm, operation].reason is None]
        measured = {arm: Measured() for arm in self.request.arms}
        if passed:
            task = MeasureCase(self.case, operation)
            finished = self.runner.run(task, passed, self.progress)
            measured |= finished.value
            measured |= {arm: Measured(reason=why) for arm, why in finished.failed.items()}
        return measured


# The status of a case by its reason; any other reason means failed.
_STATUS = {
    None: Status.OK,
    ReasonCode.PROFILER_INCOMPLETE: Status.OK,
    ReasonCode.DISTURBED: Status.INSUFFICIENT,
    ReasonCode.UNSUPPORTED: Status.UNSUPPORTED,
}


def _case_result(
    case: CaseSpec,
    operation: Operation,
    checked: Checked,
    outcome: CheckOutcome,
    measured: Measured,
    seconds: float,
) -> CaseResult:
    reason = outcome.reason or measured.reason
    return CaseResult(
        key=case_key(operation, case.name),
        case=case.name,
        operation=operation,
        workload=checked.workload.of_operation(operation),
        status=_STATUS.get(reason.code if reason else None, Status.FAILED),
        reason=reason,
        check=outcome.report,
        launches=measured.launches,
        compiled=measured.compiled,
        rounds=measured.rounds,
        stopping=measured.stopping,
        measurements=measured.measurements,
        notes=measured.notes,
        control=measured.control,
        control_spreads=measured.control_spreads,
        seconds=seconds,
    )


def _report(key: str, stored: Mapping[str, CaseResult], left_out: Collection[str]) -> CaseReport:
    stoppings = [case.stopping for case in stored.values() if case.stopping is not None]
    widths = [w for stopping in stoppings for w in stopping.half_widths.values() if w is not None]

    def arms(status: Status) -> list[str]:
        return [arm for arm, case in stored.items() if case.status is status]

    return CaseReport(
        key=key,
        failed=[arm for arm in arms(Status.FAILED) if arm not in left_out],
        insufficient=arms(Status.INSUFFICIENT),
        rounds=stoppings[0].rounds if stoppings else None,
        stopped=stoppings[0].reason if stoppings else None,
        half_width_percent=100 * max(widths) if widths else None,
        unsupported=arms(Status.UNSUPPORTED),
        left_out=[arm for arm in stored if arm in left_out],
    )


def case_key(operation: Operation, case: str) -> str:
    """Return the key of a case in a result file."""
    return f"{operation}/{case}"


def _new_run_id(config: str) -> str:
    """Return an id that no other run has: results with one id were measured side by side."""
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
        suite=info_of(load_suite(request.spec.suite)),
        variant=VariantInfo(
            name=entry.name,
            summary=entry.summary,
            source_sha256=entry.source_sha256(),
            native=request.native.get(entry.name),
        ),
        shard=None if request.division is None else request.division.shard,
        cases=[],
    )
