"""Correctness of variants: on the conformance workloads, then on those of a config."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
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


def check_conformance(
    runner: Runner,
    spec: SweepSpec,
    arms: Sequence[str],
    watcher: Watcher | None = None,
) -> Iterator[Outcome]:
    """Check every arm on the conformance workloads whose features the cases of a config need.

    An arm that crashed its worker is not tried on the remaining workloads.

    Args:
        runner: runs the tasks.
        spec: the config.
        arms: the variants.
        watcher: receives the progress.
    """
    tasks = _conformance(spec, all_features=False)
    remaining = list(arms)
    for done, task in enumerate(tasks):
        if watcher is not None:
            watcher.round(RoundProgress(done, len(tasks), "conformance workloads"))
        found, remaining = _checked(runner, task, remaining, watcher)
        yield from found


def check_spec(
    runners: Sequence[Runner],
    spec: SweepSpec,
    arms: Sequence[str],
    threads: Executor,
    report: Callable[[str], None] = lambda _: None,
) -> Generator[Outcome, None, None]:
    """Check every arm on all conformance workloads and on each case of a config.

    Arms take turns among the processes, the same on any machine. Each has all of its workloads in
    one process, in their order, and so meets whatever it has left there itself.

    Args:
        runners: each runs tasks in a process of its own.
        spec: the config.
        arms: the variants.
        threads: has a thread for each process. Shut it down once the processes have ended, since
            the system ends a process together with the thread that started it.
        report: called with the progress, in words.

    Yields:
        The outcomes, workload by workload, each in the order of the arms.
    """
    tasks: list[_Check] = list(_conformance(spec, all_features=True))
    tasks += [CheckCase(case, tuple(spec.operations)) for case in spec.cases]
    progress = _Progress(len(tasks) * len(arms), report)
    found: SimpleQueue[_Found] = SimpleQueue()
    lanes = [
        _Lane(runner, arms[at :: len(runners)], progress, found)
        for at, runner in enumerate(runners)
    ]
    waiting = [threads.submit(lane.run, tasks) for lane in lanes]
    parts: list[list[list[Outcome]]] = [[] for _ in tasks]
    try:
        for of_task in parts:
            while len(of_task) < len(lanes):
                number, part = found.get()
                if isinstance(part, BaseException):
                    raise part
                parts[number].append(part)
            outcomes = [outcome for part in of_task for outcome in part]
            yield from sorted(outcomes, key=lambda outcome: arms.index(outcome.variant))
    except BaseException:
        for runner in runners:
            runner.abandon()
        raise
    finally:
        wait(waiting)


_Check = CheckConformance | CheckCase
_Found = tuple[int, list[Outcome] | BaseException]  # the number of a workload, and its outcomes


@dataclass
class _Progress:
    """The progress of all processes together.

    Args:
        total: number of workloads to check, counted once for each arm.
        report: called with the progress, in words.
        done: number of those that are checked.
    """

    total: int
    report: Callable[[str], None]
    done: int = 0
    _one_at_a_time: Lock = field(default_factory=Lock)

    def add(self, done: int, task: _Check, arms: Sequence[str], steps: str = "") -> None:
        """Count some as checked, and report a task that goes on."""
        with self._one_at_a_time:
            self.done += done
            of = ", ".join(arms)
            self.report(
                f"checking {of} on {task.title}{steps}: {self.done} of {self.total} checked"
            )


@dataclass
class _Lane:
    """A process, and the arms that are checked there.

    Args:
        runner: runs tasks in the process.
        arms: names of the variants.
        progress: counts the workloads that are checked.
        found: receives the outcomes, or the error that ended the lane.
    """

    runner: Runner
    arms: Sequence[str]
    progress: _Progress
    found: SimpleQueue[_Found]

    def run(self, tasks: Sequence[_Check]) -> None:
        """Check the arms on all workloads, in a thread."""
        remaining: Sequence[str] = self.arms
        for number, task in enumerate(tasks):
            those = remaining if isinstance(task, CheckConformance) else self.arms
            self.progress.add(0, task, self.arms)
            try:
                outcomes, able = _checked(self.runner, task, those, _Steps(self, task))
            except BaseException as error:  # for the thread that waits
                self.found.put((number, error))
                return
            remaining = [arm for arm in remaining if arm in able]
            self.found.put((number, outcomes))
            self.progress.add(len(self.arms), task, self.arms)


@dataclass(frozen=True)
class _Steps:
    """A watcher of a task that reports how many of its steps are done."""

    lane: _Lane
    task: _Check

    def round(self, progress: RoundProgress) -> None:
        """See `Watcher`."""
        steps = f", {progress.done} of {progress.rounds} steps"
        self.lane.progress.add(0, self.task, self.lane.arms, steps)

    def worker_replaced(self, why: str) -> None:
        """Do nothing: crashes are warned of elsewhere."""


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
