"""The sweep loop: devices take cases until none is left.

Everything that needs a device is done by a `Runner`: this module imports neither torch nor Triton.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from bt_bench.config import CaseSpec
from bt_bench.protocol import Operation
from bt_bench.results import (
    Environment,
    Reason,
    VariantResult,
    condition_texts,
    fallback_texts,
)
from bt_bench.runs.check import Checks, CheckUnit, Outcome, conformance_checks
from bt_bench.runs.progress import Progress
from bt_bench.runs.sharing import Place, share
from bt_bench.runs.sweep.cases import CaseSweep
from bt_bench.runs.sweep.request import SweepRequest, write_plan
from bt_bench.runs.sweep.results import Results
from bt_bench.worker import Noticing, RoundProgress, Runner

_Case = tuple[CaseSpec, list[Operation]]  # a case, and its operations in the order of measuring


def run_sweep(
    request: SweepRequest, runner: Runner, progress: Progress, others: Sequence[Place] = ()
) -> list[VariantResult]:
    """Run a sweep; whatever ends it, its results are in the folder, marked complete or partial.

    Cases, and the operations of a case, are taken in random order; drift of the machine then hits
    all kinds of them. Results are in the config's order.

    Several devices share the conformance workloads, and then each take the next case when they have
    measured one. A device that is lost gives its case back, for another one to measure from its
    beginning.

    Args:
        request: the sweep.
        runner: has the variants and the first device.
        progress: receives the progress.
        others: further devices.

    Returns:
        One result per variant.

    Raises:
        WorkerError: if no device is left, or if a case has ended the workers of two.
    """
    spec = request.spec
    write_plan(request.folder, spec, request.division)
    places = [Place(runner, request.environment), *others]
    results = Results(request, [place.environment for place in places])
    progress.start(len(request.keys), results.num_done(), "cases")
    for text in results.remarks:
        progress.say(text)
    for text in dict.fromkeys(text for place in places for text in _warnings(place.environment)):
        progress.say(f"warning: {text}")
    rng = random.Random(spec.plan.seed)
    cases = [
        (case, rng.sample(spec.operations, len(spec.operations)))
        for case in rng.sample(spec.cases, len(spec.cases))
    ]
    failures: dict[str, Reason] = {}

    def note(outcome: Outcome) -> None:
        if outcome.failure is not None and outcome.variant not in failures:
            failures[outcome.variant] = outcome.failure
            progress.say(
                f"{outcome.variant}: FAILED, and so will all of its cases, which are not run: "
                f"{outcome.failure.code}: {outcome.failure.message}"
            )

    complete = False
    try:
        conformance = conformance_checks(spec, request.arms, note)
        devices = [
            _Device(
                request,
                results,
                place.runner,
                part,
                progress if not others else progress.of(results.name(part)),
                conformance,
                failures,
            )
            for place, part in zip(places, results.parts, strict=True)
        ]
        share(devices, [conformance.units, cases], _name, progress.say)
        complete = True
    finally:
        try:
            progress.phase("writing the tables and the page")
        finally:  # though nobody may be left to tell
            closed = results.close(complete)
    return closed


def _warnings(environment: Environment) -> Sequence[str]:
    return (*condition_texts(environment.conditions), *fallback_texts(environment.helpers))


def _name(unit: _Case | CheckUnit) -> str:
    return unit.task.title if isinstance(unit, CheckUnit) else unit[0].name


class _Device:
    """One device of a sweep.

    Args:
        request: the sweep.
        results: stores its cases.
        runner: has the variants and the device.
        part: the part of the results that its cases are of.
        progress: receives its progress.
        conformance: the checks before all cases, which the devices share.
        failures: of variants, by these checks.
    """

    def __init__(
        self,
        request: SweepRequest,
        results: Results,
        runner: Runner,
        part: int | None,
        progress: Progress,
        conformance: Checks,
        failures: Mapping[str, Reason],
    ) -> None:
        self.name = results.name(part)
        self._request = request
        self._results = results
        self.runner = Noticing(runner, results.note)
        self._part = part
        self._progress = progress
        self._conformance = conformance
        self._failures = failures

    def begin(self) -> None:
        """Calibrate."""
        progress = self._progress
        if not self._results.is_calibrated(self._part):
            progress.phase("calibrating the harness")
            self._results.calibrate(self.runner, self._part, progress)
        progress.phase("checking the variants on the conformance workloads")

    def do(self, unit: _Case | CheckUnit) -> None:
        """Check a conformance workload, or measure a case, unless the results have it already.

        Raises:
            WorkerError: if the device is gone.
            UsageError: for a case that cannot be built, or results that cannot be written.
        """
        if isinstance(unit, CheckUnit):
            checks = self._conformance
            total = len(checks.units)
            self._progress.round(RoundProgress(checks.done, total, "conformance workloads"))
            checks.do(self.runner, unit, self._progress)
            return
        case, operations = unit
        missing = self._results.missing(case.name, operations, self._part)
        if missing:
            CaseSweep(
                self._request, self.runner, self._progress, case, self._failures, self._part
            ).run(missing, self._results)

    def abandon(self) -> None:
        """See `Device`."""
        self.runner.abandon()
