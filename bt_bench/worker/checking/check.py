"""Runs variants and reference side by side: fresh inputs, poisoned outputs, every step compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from bt_bench.names import Path
from bt_bench.protocol import Operation, Suite, Trial, Workload, driver_of, suite_of
from bt_bench.results import Reason, ReasonCode
from bt_bench.variants import load_reference
from bt_bench.worker.arm import Arm, lacking
from bt_bench.worker.checking.plain_trial import PlainTrial
from bt_bench.worker.checking.subject import Subject, Through
from bt_bench.worker.tasks import CheckOutcome, CheckOutcomes


def check(
    variants: Mapping[str, type[Any]],
    workload: Workload,
    operations: Sequence[Operation],
    device: torch.device,
    *,
    rounds: int = 1,
    seed: int = 0,
    title: str = "check",
) -> CheckOutcomes:
    """Runs variants and reference side by side through a workload, and compares every step.

    Each round has other contents than the last one; what is compared is the matter of the suite's
    trial. A variant that lacks a feature of the workload is not run, and that is its outcome.

    Args:
        variants: class by name.
        workload: what to run.
        operations: those that will be timed; each is checked through the calls it is timed in.
        device: where the variants run; the reference runs on the CPU.
        rounds: replays of the window, each with other contents.
        seed: for contents, garbage and poison.
        title: what messages call the workload.

    Returns:
        An outcome for each variant and operation.

    Raises:
        ArmFailedError: when a variant has run out of memory or has taken the device with it; the
            others have to be checked without it, in a fresh process.
    """
    suite = suite_of(workload)
    reasons = {
        name: lacking(variant, workload) or _undefined(suite, variant, workload)
        for name, variant in variants.items()
    }
    able = {name: variant for name, variant in variants.items() if reasons[name] is None}
    paths = list(dict.fromkeys(operation.path for operation in operations))
    differences = driver_of(suite).differences_of
    subjects = {
        (name, path): Subject(name, path, device, differences=differences(variant))
        for name, variant in able.items()
        for path in paths
    }
    rng = np.random.default_rng(seed)
    for round_index in range(rounds if able else 0):
        trial = _trial(suite, workload, device, rng, paths)
        where = f"{title}, round {round_index}"
        _check_round(trial, able, list(subjects.values()), where)
    return {
        (name, operation): subjects[name, operation.path].outcome()
        if name in able
        else CheckOutcome(None, reasons[name])
        for name in variants
        for operation in operations
    }


def verify_after_timing(
    arms: Iterable[Arm],
    steps: Sequence[Any],
    workload: Workload,
    operation: Operation,
    device: torch.device,
    *,
    through: Through | None = None,
) -> dict[str, Reason]:
    """Compares arms that have been timed once more, on the very inputs that were timed.

    A variant may be right the first time and then reuse what it remembers, or be corrupted by a
    replay. If an arm is wrong now, its times are those of something else.

    Args:
        arms: each in any state; several may have one name.
        steps: the inputs that were timed.
        workload: what they were made of.
        operation: what was timed.
        device: where the arms are.
        through: makes each call as it was timed; by default a plain call.

    Returns:
        The reason for each arm that fails.

    Raises:
        ArmFailedError: as `check`.
    """
    trial = _trial(suite_of(workload), workload, device, None, [operation.path])
    arms = list(arms)
    subjects = [Subject(arm.name, operation.path, device, through) for arm in arms]
    for subject, arm in zip(subjects, arms, strict=True):
        subject.resume("after timing, restore", trial, arm)
    for index in range(trial.num_steps):
        expected = trial.expect(index)
        for subject in subjects:
            subject.step(f"after timing, step {index}", trial, index, expected, steps[index])
    return {subject.name: subject.reason for subject in subjects if subject.reason is not None}


def _trial(
    suite: Suite,
    workload: Workload,
    device: torch.device,
    rng: np.random.Generator | None,
    paths: Sequence[Path],
) -> Trial:
    kind = driver_of(suite).trial or PlainTrial
    return kind(load_reference(suite), workload, device, rng, paths)


def _undefined(suite: Suite, variant: type[Any], workload: Workload) -> Reason | None:
    message = driver_of(suite).undefined_on(variant, workload)
    return None if message is None else Reason(code=ReasonCode.UNSUPPORTED, message=message)


def _check_round(
    trial: Trial, variants: Mapping[str, type[Any]], subjects: Sequence[Subject], where: str
) -> None:
    for subject in subjects:
        subject.begin(f"{where}, set-up", trial, variants[subject.name])
    for index in range(trial.num_steps):
        expected = trial.expect(index)
        for subject in subjects:
            subject.step(f"{where}, step {index}", trial, index, expected)
    for title, action in trial.further():
        for subject in subjects:
            subject.attempt(f"{where}, {title}", partial(subject.run, action))
