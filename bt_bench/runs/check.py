"""Correctness of variants: on the conformance workloads, then on those of a config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    CheckOutcomes,
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
    *,
    all_features: bool = False,
) -> Iterator[Outcome]:
    """Check every arm on the conformance workloads, with the operations of a config.

    An arm that crashed its worker is not tried on the remaining workloads.

    Args:
        runner: runs the tasks.
        spec: the config.
        arms: the variants.
        watcher: receives the progress.
        all_features: also check features that no case of the config needs.
    """
    operations = tuple(spec.operations)
    with running(load_suite(spec.suite), "features of the parameters"):
        used = frozenset[str]().union(*(case.parameters.features for case in spec.cases))
    remaining = list(arms)
    names = [
        name
        for name, features in at_suite(
            spec.suite, features_of_conformance, spec.suite, spec.plan.seed
        ).items()
        if all_features or features <= used
    ]
    for done, name in enumerate(names):
        if watcher is not None:
            watcher.round(RoundProgress(done, len(names), "conformance workloads"))
        task = CheckConformance(name, operations)
        finished = runner.run(task, remaining, watcher)
        yield from _outcomes(task.title, remaining, operations, finished.value, finished.failed)
        remaining = [arm for arm in remaining if arm not in finished.failed]


def check_spec(runner: Runner, spec: SweepSpec, arms: Sequence[str]) -> Iterator[Outcome]:
    """Check every arm on all conformance workloads and on each case of a config."""
    yield from check_conformance(runner, spec, arms, all_features=True)
    operations = tuple(spec.operations)
    for case in spec.cases:
        finished = runner.run(CheckCase(case, operations), arms)
        outcomes = finished.value.outcomes
        yield from _outcomes(case.name, arms, operations, outcomes, finished.failed)


def _outcomes(
    workload: str,
    arms: Sequence[str],
    operations: Sequence[Operation],
    outcomes: CheckOutcomes,
    failed: Mapping[str, Reason],
) -> Iterator[Outcome]:
    for arm in arms:
        for operation in operations:
            if arm in failed:
                yield Outcome(arm, workload, operation, failed[arm], 0)
                continue
            outcome = outcomes[arm, operation]
            steps = outcome.report.steps if outcome.report else 0
            yield Outcome(arm, workload, operation, outcome.reason, steps)
