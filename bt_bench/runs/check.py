"""Correctness of variants: on the conformance workloads, then on those of a config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
    runner: Runner,
    spec: SweepSpec,
    arms: Sequence[str],
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[Outcome]:
    """Check every arm on all conformance workloads and on each case of a config.

    Args:
        runner: runs the tasks.
        spec: the config.
        arms: the variants.
        report: called with the progress, in words.
    """
    tasks: list[_Check] = list(_conformance(spec, all_features=True))
    tasks += [CheckCase(case, tuple(spec.operations)) for case in spec.cases]
    remaining: Sequence[str] = arms
    for done, task in enumerate(tasks):
        steps = _Steps(task.title, f"{done} of {len(tasks)} workloads checked", report)
        steps.tell()
        if isinstance(task, CheckConformance):
            found, remaining = _checked(runner, task, remaining, steps)
        else:
            found, _ = _checked(runner, task, arms, steps)
        yield from found


_Check = CheckConformance | CheckCase


@dataclass(frozen=True)
class _Steps:
    """A watcher of a task that reports how many of its steps are done.

    Args:
        title: name of the workload.
        so_far: how many workloads are done, in words.
        report: called with the progress, in words.
    """

    title: str
    so_far: str
    report: Callable[[str], None]

    def tell(self, steps: str = "") -> None:
        """Report the workload."""
        self.report(f"checking {self.title}{steps}: {self.so_far}")

    def round(self, progress: RoundProgress) -> None:
        """See `Watcher`."""
        self.tell(f", {progress.done} of {progress.rounds} steps")

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
