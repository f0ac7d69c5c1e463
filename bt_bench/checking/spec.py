"""Correctness of variants: on the conformance workloads, then on those of a config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bt_bench.checking.check import Verdict, check
from bt_bench.config.schema import SweepSpec
from bt_bench.model import Operation, Reason
from bt_bench.workloads.build import build_workload
from bt_bench.workloads.conformance import conformance_workloads
from bt_bench.workloads.steps import Workload


@dataclass(frozen=True)
class Outcome:
    """How one variant did on one workload, through the calls of one operation.

    Args:
        variant: its name.
        workload: name of the workload.
        operation: the operation.
        reason: why it failed, or `None`.
        steps: steps that were compared.
    """

    variant: str
    workload: str
    operation: Operation
    reason: Reason | None
    steps: int


def check_conformance(
    spec: SweepSpec, variants: Mapping[str, type[Any]], device: torch.device
) -> Iterator[Outcome]:
    """Checks every variant on the conformance workloads, with the operations of a config."""
    for title, workload in conformance_workloads(spec.plan.seed).items():
        yield from _check(spec, variants, workload, f"conformance:{title}", device)


def check_spec(
    spec: SweepSpec, variants: Mapping[str, type[Any]], device: torch.device
) -> Iterator[Outcome]:
    """Checks every variant on the conformance workloads and on each case of a config."""
    yield from check_conformance(spec, variants, device)
    for case in spec.cases:
        yield from _check(spec, variants, build_workload(case.parameters), case.name, device)


def _check(
    spec: SweepSpec,
    variants: Mapping[str, type[Any]],
    workload: Workload,
    title: str,
    device: torch.device,
) -> Iterator[Outcome]:
    verdicts = check(
        variants,
        workload,
        spec.operations,
        device,
        rounds=spec.plan.check_rounds,
        seed=spec.plan.seed,
        title=title,
    )
    for (name, operation), verdict in verdicts.items():
        yield Outcome(name, title, operation, verdict.reason, _steps(verdict))


def _steps(verdict: Verdict) -> int:
    return verdict.report.steps if verdict.report else 0
