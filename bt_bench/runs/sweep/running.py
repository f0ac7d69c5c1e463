"""The sweep loop: devices take cases until none is left.

Everything that needs a device is done by a `Runner`: this module imports neither torch nor Triton.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from bt_bench.config import CaseSpec
from bt_bench.protocol import Operation
from bt_bench.results import (
    Environment,
    Reason,
    VariantResult,
    condition_texts,
    fallback_texts,
)
from bt_bench.runs.check import check_conformance
from bt_bench.runs.progress import Progress
from bt_bench.runs.sharing import Place, share
from bt_bench.runs.sweep.cases import CaseSweep
from bt_bench.runs.sweep.request import SweepRequest, write_plan
from bt_bench.runs.sweep.results import Results
from bt_bench.worker import Noticing, Runner

_Case = tuple[CaseSpec, list[Operation]]  # a case, and its operations in the order of measuring


def run_sweep(
    request: SweepRequest, runner: Runner, progress: Progress, others: Sequence[Place] = ()
) -> list[VariantResult]:
    """Run a sweep; whatever ends it, its results are in the folder, marked complete or partial.

    Cases, and the operations of a case, are taken in random order; drift of the machine then hits
    all kinds of them. Results are in the config's order.

    Several devices each take the next case when they have measured one. A device that is lost gives
    its case back, for another one to measure from its beginning.

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
    devices = [
        _Device(request, results, place.runner, part, progress, is_alone=not others)
        for place, part in zip(places, results.parts, strict=True)
    ]
    complete = False
    try:
        share(devices, cases, lambda unit: unit[0].name, progress.say)
        complete = True
    finally:
        closed = results.close(complete)
    return closed


def _warnings(environment: Environment) -> Sequence[str]:
    return (*condition_texts(environment.conditions), *fallback_texts(environment.helpers))


class _Device:
    """One device of a sweep.

    Args:
        request: the sweep.
        results: stores its cases.
        runner: has the variants and the device.
        part: the part of the results that its cases are of.
        progress: receives the progress of the sweep.
        is_alone: whether the sweep has no other device.
    """

    def __init__(
        self,
        request: SweepRequest,
        results: Results,
        runner: Runner,
        part: int | None,
        progress: Progress,
        *,
        is_alone: bool,
    ) -> None:
        self.name = results.name(part)
        self._request = request
        self._results = results
        self.runner = Noticing(runner, results.note)
        self._part = part
        self._progress = progress if is_alone else progress.of(self.name)
        self._failures: dict[str, Reason] = {}  # of variants, before any case

    def do(self, unit: _Case) -> None:
        """Measure a case, unless the results have it already.

        Raises:
            WorkerError: if the device is gone.
            UsageError: for a case that cannot be built, or results that cannot be written.
        """
        case, operations = unit
        missing = self._results.missing(case.name, operations, self._part)
        if missing:
            CaseSweep(
                self._request, self.runner, self._progress, case, self._failures, self._part
            ).run(missing, self._results)

    def abandon(self) -> None:
        """See `Device`."""
        self.runner.abandon()

    def begin(self) -> None:
        """Calibrate, and look for variants that fail on the conformance workloads."""
        progress = self._progress
        if not self._results.is_calibrated(self._part):
            progress.phase("calibrating the harness")
            self._results.calibrate(self.runner, self._part, progress)
        progress.phase("checking the variants on the conformance workloads")
        failures = self._failures
        for outcome in check_conformance(
            self.runner, self._request.spec, self._request.arms, progress
        ):
            if outcome.failure is not None and outcome.variant not in failures:
                failures[outcome.variant] = outcome.failure
                progress.say(
                    f"{outcome.variant}: FAILED, and so will all of its cases, which are not run: "
                    f"{outcome.failure.code}: {outcome.failure.message}"
                )
