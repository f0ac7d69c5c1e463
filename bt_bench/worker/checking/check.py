"""Checks of variants beside the reference: fresh inputs, poisoned outputs, every step compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from bt_bench.protocol import Operation, Suite, Trial, Workload, driver_of, running, suite_of
from bt_bench.results import Reason, ReasonCode
from bt_bench.worker.checking.plain_trial import trial_of
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
    """Run variants beside the reference through a workload, and compare every step.

    Each round has new contents. The suite's trial defines the comparison. A variant that lacks a
    feature of the workload is not run; its outcome reports the missing feature.

    Args:
        variants: classes by name.
        workload: the workload to run.
        operations: the operations to be timed; each is checked through the calls it is timed in.
        device: the variants' device; the reference runs on the CPU.
        rounds: replays of the window, each with new contents.
        seed: for contents, garbage and poison.
        title: the workload's name in messages.
        on_round: called with the progress.

    Returns:
        An outcome for each variant and operation.

    Raises:
        ArmFailedError: if a variant ran out of memory or broke the device. Check the others
            without it, in a fresh process.
    """
    suite = suite_of(workload)
    reasons = {
        name: _unsupported(suite, variant, workload, device) for name, variant in variants.items()
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
        trial = trial_of(suite, workload, device, rng, paths)
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
"""Overwrites a call's result; the next call is right only if it does all of its work."""


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
    """Check arms that are being timed, with other contents in the very tensors that are timed.

    A variant may be right at first and later reuse a remembered result, be corrupted by a replay,
    or do less while it is timed. The times of a wrong arm mean nothing. Contents are drawn from
    the system's entropy; no variant can predict them.

    Args:
        arms: the arms, each in any state; several may share a name.
        steps: the inputs that are timed.
        workload: the workload that the inputs were made from.
        operation: the operation that is timed.
        device: the arms' device.
        where: returns the beginning of messages about an arm.
        through: returns a wrapper that makes an arm's calls as they are timed; the wrapper may
            spoil a call's result and repeat the call. By default, calls are made plainly.
        tell: called after each step of each arm.

    Returns:
        The reason for each arm that fails, by name.

    Raises:
        ArmFailedError: see `check`.
    """
    suite = suite_of(workload)
    with running(suite, "driver"):
        other = driver_of(suite).with_other_contents(workload, np.random.default_rng())
    taken = workload if other is None else other
    trial = trial_of(suite, taken, device, None, [operation.path])
    expected: Any = None

    def spoil(subject: Subject, result: object) -> None:
        subject.refill(trial, expected, result)

    subjects = [Subject(arm.name, operation.path, device) for arm in arms]
    ready: list[tuple[Subject, str, Sequence[Any]]] = []
    taken: dict[str, Arm] = {}  # of each variant, the first arm with the other contents
    for subject, arm in zip(subjects, arms, strict=True):
        if through is not None:
            subject.through = through(arm, partial(spoil, subject))
        place = where(arm)
        inputs = subject.resume(f"{place}, set-up", trial, arm, other, steps, taken.get(arm.name))
        if inputs is not None:
            ready.append((subject, place, inputs))
            taken.setdefault(arm.name, arm)
    for index in range(trial.num_steps):
        expected = trial.expect(index)
        for subject, place, inputs in ready:
            subject.step(f"{place}, step {index}", trial, index, expected, inputs[index])
            if tell is not None:
                tell()
    return {subject.name: subject.reason for subject in subjects if subject.reason is not None}


def _unsupported(
    suite: Suite, variant: type[Any], workload: Workload, device: torch.device
) -> Reason | None:
    """Return why a variant is not run on a workload; `None` if it is."""
    reason = lacking(variant, workload)
    if reason is not None:
        return reason
    with running(suite, "undefined_on of the driver"):
        message = driver_of(suite).undefined_on(variant, workload)
    if message is None and workload.large and device.type == "cpu":
        message = "takes the interpreter minutes; checked on a GPU"
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
