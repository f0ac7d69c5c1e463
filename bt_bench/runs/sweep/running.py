"""The sweep loop: devices take cases until none is left.

Everything that needs a device is done by a `Runner`: this module imports neither torch nor Triton.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from bt_bench.base import one_line
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
from bt_bench.runs.sweep.cases import CaseSweep
from bt_bench.runs.sweep.request import SweepRequest, write_plan
from bt_bench.runs.sweep.results import Results
from bt_bench.worker import Noticing, Runner, WorkerError

_Case = tuple[CaseSpec, list[Operation]]  # a case, and its operations in the order of measuring


@dataclass(frozen=True)
class Place:
    """A device that takes part in a sweep.

    Args:
        runner: has the variants and the device.
        environment: as the runner's process found it.
    """

    runner: Runner
    environment: Environment


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
    cases = deque(
        (case, rng.sample(spec.operations, len(spec.operations)))
        for case in rng.sample(spec.cases, len(spec.cases))
    )
    devices = [
        _Device(request, results, place.runner, part, progress, is_alone=not others)
        for place, part in zip(places, results.parts, strict=True)
    ]
    complete = False
    try:
        if others:
            _share(devices, cases, progress)
        elif (lost := devices[0].work(cases)) is not None:
            raise lost.error
        complete = True
    finally:
        closed = results.close(complete)
    return closed


def _warnings(environment: Environment) -> Sequence[str]:
    return (*condition_texts(environment.conditions), *fallback_texts(environment.helpers))


def _share(devices: Sequence[_Device], cases: deque[_Case], progress: Progress) -> None:
    """Have all devices take cases at once, in a thread each, until none is left."""
    left = list(devices)
    given_back: set[str] = set()
    with ThreadPoolExecutor(len(devices)) as pool:  # a worker ends with the thread that started it
        try:
            while left:
                works = {pool.submit(device.work, cases): device for device in left}
                for work in as_completed(works):
                    lost = work.result()
                    if lost is None:
                        continue
                    device = works[work]
                    left.remove(device)
                    name = None if lost.case is None else lost.case[0].name
                    if not left or name in given_back:
                        raise lost.error
                    if name is not None and lost.case is not None:
                        given_back.add(name)
                        cases.append(lost.case)
                    what = f"; another device measures {name}" if name else ""
                    progress.say(f"{device.name} is given up: {one_line(str(lost.error))}{what}")
                if not cases:
                    return
        except BaseException:
            for device in devices:
                device.runner.abandon()
            raise


@dataclass(frozen=True)
class _Lost:
    """A device that is gone, with the case that it was measuring, if any."""

    case: _Case | None
    error: WorkerError


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
        self._failures: dict[str, Reason] | None = None  # of variants; unknown before it has begun

    def work(self, cases: deque[_Case]) -> _Lost | None:
        """Take cases until none is left; return why not, if the device is gone.

        Raises:
            UsageError: for a case that cannot be built, or results that cannot be written.
        """
        taken = None
        try:
            if self._failures is None:
                self._failures = self._begun()
            while cases:
                try:
                    taken = case, operations = cases.popleft()
                except IndexError:  # another device was faster
                    break
                missing = self._results.missing(case.name, operations, self._part)
                if missing:
                    CaseSweep(
                        self._request, self.runner, self._progress, case, self._failures, self._part
                    ).run(missing, self._results)
                taken = None
        except WorkerError as error:
            return _Lost(taken, error)
        return None

    def _begun(self) -> dict[str, Reason]:
        """Calibrate; return the variants that fail on the conformance workloads, and why."""
        progress = self._progress
        if not self._results.is_calibrated(self._part):
            progress.phase("calibrating the harness")
            self._results.calibrate(self.runner, self._part, progress)
        progress.phase("checking the variants on the conformance workloads")
        failures: dict[str, Reason] = {}
        for outcome in check_conformance(
            self.runner, self._request.spec, self._request.arms, progress
        ):
            if outcome.failure is not None and outcome.variant not in failures:
                failures[outcome.variant] = outcome.failure
                progress.say(
                    f"{outcome.variant}: FAILED, and so will all of its cases, which are not run: "
                    f"{outcome.failure.code}: {outcome.failure.message}"
                )
        return failures
