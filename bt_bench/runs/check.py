"""Correctness of variants: on the conformance workloads, then on those of a config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from bt_bench.config import SweepSpec
from bt_bench.protocol import (
    Operation,
    at_suite,
    features_of_conformance,
    load_suite,
    running,
)
from bt_bench.results import Reason, ReasonCode
from bt_bench.runs.sharing import Place, share
from bt_bench.worker import (
    CheckCase,
    CheckConformance,
    Checked,
    Finished,
    RoundProgress,
    Runner,
    Watcher,
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one variant on one workload, through the calls of one operation.

    Args:
        variant: its name.
        workload: name of the workload.
        operation: the operation.
        reason: why it failed, or was not run; `None` if it passed.
        steps: number of compared steps.
    """

    variant: str
    workload: str
    operation: Operation
    reason: Reason | None
    steps: int

    @property
    def failure(self) -> Reason | None:
        """Reason of a failure; a variant that only lacks a feature of the workload did not fail."""
        if self.reason is None or self.reason.code is ReasonCode.UNSUPPORTED:
            return None
        return self.reason


def check_conformance(runner: Runner, spec: SweepSpec, arms: Sequence[str]) -> list[Outcome]:
    """Check every arm on the conformance workloads whose features the cases of a config need.

    An arm that crashed its worker is not tried on the remaining workloads.

    Args:
        runner: runs the tasks.
        spec: the config.
        arms: the variants.

    Returns:
        The outcomes, in the order of workloads, variants and operations.
    """
    outcomes: list[Outcome] = []
    checks = conformance_checks(spec, arms, outcomes.append)
    for unit in checks.units:
        checks.do(runner, unit)
    return outcomes


def conformance_checks(
    spec: SweepSpec, arms: Sequence[str], on_outcome: Callable[[Outcome], None]
) -> Checks:
    """Return the checks on the conformance workloads whose features the cases of a config need.

    Args:
        spec: the config.
        arms: the variants.
        on_outcome: called with each outcome, in the order of workloads, variants and operations.
    """
    return Checks(_conformance(spec, all_features=False), arms, on_outcome)


def check_spec(
    places: Sequence[Place],
    spec: SweepSpec,
    arms: Sequence[str],
    on_outcome: Callable[[Outcome], None],
    report: Callable[[str], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> list[Place]:
    """Check every arm on all conformance workloads and on each case of a config.

    Several devices each take the next workload; the outcomes are the ones of a single device. An
    arm that crashed its worker is not tried on the remaining conformance workloads.

    Args:
        places: the devices.
        spec: the config.
        arms: the variants.
        on_outcome: called with each outcome, in the order of workloads, variants and operations.
        report: called with the progress, in words.
        warn: called with a message for each device that is given up.

    Returns:
        The devices that are left.

    Raises:
        WorkerError: as `share`.
    """
    tasks: list[_Check] = list(_conformance(spec, all_features=True))
    tasks += [CheckCase(case, tuple(spec.operations)) for case in spec.cases]
    checks = Checks(tasks, arms, on_outcome)
    devices = [_Checker(place, checks, report) for place in places]
    left = share(devices, [checks.units], lambda unit: unit.task.title, warn)
    kept = [device for device in devices if device in left]
    for device in kept:
        if device.is_replaced and len(devices) > 1:
            # Its worker has ended with the thread that started it, which is no crash.
            device.place.runner.renew()
    return [device.place for device in kept]


_Check = CheckConformance | CheckCase


@dataclass(frozen=True)
class CheckUnit:
    """The check of one workload.

    Args:
        index: place of the workload among all.
        task: the check.
    """

    index: int
    task: _Check


class Checks:
    """Checks of arms on workloads, which devices do in any order.

    Args:
        tasks: a check of each workload.
        arms: the variants.
        on_outcome: called with each outcome, in the order of workloads, variants and operations.
    """

    def __init__(
        self, tasks: Sequence[_Check], arms: Sequence[str], on_outcome: Callable[[Outcome], None]
    ) -> None:
        self.units = [CheckUnit(index, task) for index, task in enumerate(tasks)]
        self._arms = arms
        self._on_outcome = on_outcome
        self._found: dict[int, Sequence[Outcome]] = {}
        self._told = 0  # workloads whose outcomes were passed on
        self._crashed: dict[str, int] = {}  # by variant, its first conformance workload
        self._lock = Lock()

    @property
    def done(self) -> int:
        """Return how many workloads are checked."""
        return len(self._found)

    def do(self, runner: Runner, unit: CheckUnit, watcher: Watcher | None = None) -> None:
        """Check the arms on a workload, and pass on the outcomes that are next.

        An arm that has crashed on an earlier conformance workload is left out.

        Args:
            runner: runs the task.
            unit: the workload.
            watcher: receives the progress.
        """
        arms = [arm for arm in self._arms if self._counts(arm, unit)]
        found, left = _checked(runner, unit.task, arms, watcher)
        with self._lock:
            if isinstance(unit.task, CheckConformance):
                for arm in set(arms).difference(left):
                    self._crashed[arm] = min(unit.index, self._crashed.get(arm, unit.index))
            self._found[unit.index] = found
            while self._told in self._found:
                for outcome in self._found[self._told]:
                    if self._counts(outcome.variant, self.units[self._told]):
                        self._on_outcome(outcome)
                self._told += 1

    def _counts(self, arm: str, unit: CheckUnit) -> bool:
        """Return whether a variant has not crashed on an earlier conformance workload."""
        is_case = isinstance(unit.task, CheckCase)
        return is_case or self._crashed.get(arm, unit.index) >= unit.index


@dataclass(eq=False)
class _Checker:
    """A device that checks workloads.

    Args:
        place: the device.
        checks: of all workloads.
        report: called with the progress, in words.
        is_replaced: whether its first worker had to be replaced.
    """

    place: Place
    checks: Checks
    report: Callable[[str], None]
    is_replaced: bool = False

    @property
    def name(self) -> str:
        return self.place.name

    def begin(self) -> None:
        """Do nothing: no workload needs another."""

    def do(self, unit: CheckUnit) -> None:
        """Check all variants on a workload."""
        steps = _Steps(f"checking {unit.task.title}", self._tell)
        self._tell(steps.activity)
        self.checks.do(self.place.runner, unit, steps)
        self.is_replaced |= steps.is_replaced

    def abandon(self) -> None:
        """See `Device`."""
        self.place.runner.abandon()

    def _tell(self, activity: str) -> None:
        checks = self.checks
        self.report(f"{activity}: {checks.done} of {len(checks.units)} workloads checked")


@dataclass
class _Steps:
    """A watcher of a task that reports how many of its steps are done.

    Args:
        activity: the task, in words.
        report: called with the activity and its steps.
        is_replaced: whether a fresh worker took the task over.
    """

    activity: str
    report: Callable[[str], None]
    is_replaced: bool = False

    def round(self, progress: RoundProgress) -> None:
        """See `Watcher`."""
        self.report(f"{self.activity}, {progress.done} of {progress.rounds} steps")

    def worker_replaced(self, why: str) -> None:
        """Note it; crashes are warned of elsewhere."""
        self.is_replaced = True


def _conformance(spec: SweepSpec, *, all_features: bool) -> list[CheckConformance]:
    """Return the tasks of the conformance workloads, in their order.

    Args:
        spec: the config.
        all_features: include workloads whose features no case of the config needs.
    """
    operations = tuple(spec.operations)
    with running(load_suite(spec.suite), "features of the parameters"):
        used = frozenset[str]().union(*(case.parameters.features for case in spec.cases))
    needed = at_suite(spec.suite, features_of_conformance, spec.suite, spec.plan.seed)
    return [
        CheckConformance(name, operations)
        for name, features in needed.items()
        if all_features or features <= used
    ]


def _checked(
    runner: Runner, task: _Check, arms: Sequence[str], watcher: Watcher | None
) -> tuple[list[Outcome], list[str]]:
    """Check arms on a workload, and return their outcomes, and the arms that did not crash."""
    finished: Finished[Any] = runner.run(task, arms, watcher)
    outcomes = finished.value
    if isinstance(outcomes, Checked):
        outcomes = outcomes.outcomes
    workload = task.title
    found = []
    for arm in arms:
        for operation in task.operations:
            if arm in finished.failed:
                found.append(Outcome(arm, workload, operation, finished.failed[arm], 0))
                continue
            outcome = outcomes[arm, operation]
            steps = outcome.report.steps if outcome.report else 0
            found.append(Outcome(arm, workload, operation, outcome.reason, steps))
    return found, [arm for arm in arms if arm not in finished.failed]
