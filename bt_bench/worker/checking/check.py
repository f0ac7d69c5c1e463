"""Runs variants and reference side by side: fresh inputs, poisoned outputs, every step compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from bt_bench.base.names import Path
from bt_bench.protocol import Operation, Suite, Trial, Workload, driver_of, running, suite_of
from bt_bench.results import Reason, ReasonCode
from bt_bench.variants import load_reference
from bt_bench.worker.checking.plain_trial import PlainTrial
from bt_bench.worker.checking.subject import Subject, Through
from bt_bench.worker.tasks.arm import Arm, lacking
from bt_bench.worker.tasks.outcome import OnRound, told_in_parts, untold
from bt_bench.worker.tasks.tasks import CheckOutcome, CheckOutcomes


def check(
    variants: Mapping[str, type[Any]],
    workload: Workload,
    operations: Sequence[Operation],
    device: torch.device,
    *,
    rounds: int = 1,
    seed: int = 0,
    title: str = "check",
    on_round: OnRound = untold,
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
        on_round: is told how far it is.

    Returns:
        An outcome for each variant and operation.

    Raises:
        ArmFailedError: when a variant has run out of memory or has taken the device with it; the
            others have to be checked without it, in a fresh process.
    """
    suite = suite_of(workload)
    reasons = {
        name: lacking(variant, workload)
        or _undefined(suite, variant, workload)
        or _too_large(workload, device)
        for name, variant in variants.items()
    }
    able = {name: variant for name, variant in variants.items() if reasons[name] is None}
    paths = list(dict.fromkeys(operation.path for operation in operations))
    differences = driver_of(suite).differences_of
    with running(suite, "differences_of of the driver"):
        differing = {name: differences(variant) for name, variant in able.items()}
    subjects = {
        (name, path): Subject(name, path, device, differences=differing[name])
        for name in able
        for path in paths
    }
    rng = np.random.default_rng(seed)
    replays = rounds if able else 0
    tell = told_in_parts(on_round, "checking", replays * len(workload.steps) * len(subjects))
    for round_index in range(replays):
        trial = _trial(suite, workload, device, rng, paths)
        where = f"{title}, round {round_index}"
        _check_round(trial, able, list(subjects.values()), where, tell)
    return {
        (name, operation): subjects[name, operation.path].outcome()
        if name in able
        else CheckOutcome(None, reasons[name])
        for name in variants
        for operation in operations
    }


Spoil = Callable[[object], None]
"""Overwrites what a call returned, so that only a call that does all of its work is right again."""


def verify_timed(
    arms: Sequence[Arm],
    steps: Sequence[Any],
    workload: Workload,
    operation: Operation,
    device: torch.device,
    *,
    where: Callable[[Arm], str] = lambda _: "after timing",
    through: Callable[[Arm, Spoil], Through] | None = None,
    tell: Callable[[], object] | None = None,
) -> dict[str, Reason]:
    """Compares arms that are being timed, on other contents in the tensors that are timed.

    A variant may be right at first and then reuse what it remembers, be corrupted by a replay, or
    do less while it is timed. If an arm is wrong, its times are those of something else. Contents
    are drawn from the system's entropy, so that no variant can know them.

    Args:
        arms: each in any state; several may have one name.
        steps: the inputs that are timed.
        workload: what they were made of.
        operation: what is timed.
        device: where the arms are.
        where: the beginning of messages about an arm.
        through: gives what makes the calls of an arm as they are timed, and may spoil what a call
            has returned before it makes it again; by default they are made plainly.
        tell: is called after each step of each arm.

    Returns:
        The reason for each arm that fails.

    Raises:
        ArmFailedError: as `check`.
    """
    suite = suite_of(workload)
    with running(suite, "driver"):
        other = driver_of(suite).with_other_contents(workload, np.random.default_rng())
    taken = workload if other is None else other
    trial = _trial(suite, taken, device, None, [operation.path])
    expected: Any = None

    def spoil(subject: Subject, result: object) -> None:
        subject.refill(trial, expected, result)

    subjects = [Subject(arm.name, operation.path, device) for arm in arms]
    for subject, arm in zip(subjects, arms, strict=True):
        if through is not None:
            subject.through = through(arm, partial(spoil, subject))
    ready: list[tuple[Subject, str, Sequence[Any]]] = []
    for subject, arm in zip(subjects, arms, strict=True):
        place = where(arm)
        inputs = subject.resume(f"{place}, set-up", trial, arm, other, steps)
        if inputs is not None:
            ready.append((subject, place, inputs))
    for index in range(trial.num_steps):
        expected = trial.expect(index)
        for subject, place, inputs in ready:
            subject.step(f"{place}, step {index}", trial, index, expected, inputs[index])
            if tell is not None:
                tell()
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


def _too_large(workload: Workload, device: torch.device) -> Reason | None:
    if not workload.large or device.type != "cpu":
        return None
    message = "takes the interpreter minutes; checked on a GPU"
    return Reason(code=ReasonCode.UNSUPPORTED, message=message)


def _undefined(suite: Suite, variant: type[Any], workload: Workload) -> Reason | None:
    with running(suite, "undefined_on of the driver"):
        message = driver_of(suite).undefined_on(variant, workload)
    return None if message is None else Reason(code=ReasonCode.UNSUPPORTED, message=message)


def _check_round(
    trial: Trial,
    variants: Mapping[str, type[Any]],
    subjects: Sequence[Subject],
    where: str,
    tell: Callable[[], object],
) -> None:
    for subject in subjects:
        subject.begin(f"{where}, set-up", trial, variants[subject.name])
    for index in range(trial.num_steps):
        expected = trial.expect(index)
        for subject in subjects:
            subject.step(f"{where}, step {index}", trial, index, expected)
            tell()
    for title, action in trial.further():
        for subject in subjects:
            subject.attempt(f"{where}, {title}", partial(subject.run, action))
