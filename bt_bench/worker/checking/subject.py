"""A variant under check: its runs, comparisons and outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from bt_bench.base.names import Path
from bt_bench.protocol import Guard, MismatchError, Through, Trial
from bt_bench.protocol.driver import plainly
from bt_bench.results import CheckReport, Reason, ReasonCode
from bt_bench.variants import is_interrupt
from bt_bench.worker.checking.interpreter_guard import guard_on
from bt_bench.worker.machine import activity
from bt_bench.worker.tasks.arm import Arm
from bt_bench.worker.tasks.failures import ArmFailedError, is_fatal, reason_of, synchronize
from bt_bench.worker.tasks.tasks import CheckOutcome

__all__ = ["Subject", "Through"]


@dataclass(eq=False)
class Subject:
    """A variant under check on one path, and its outcome.

    Args:
        name: the variant's name.
        path: the path of the operations to call.
        device: the device of the variant.
        differences: names of its own definitions that it is checked by.
        through: makes its calls.
        reason: why it has failed; `None`: it has not.
        steps: number of steps that were compared.
    """

    name: str
    path: Path
    device: torch.device
    differences: Sequence[str] = ()
    through: Through = plainly
    reason: Reason | None = None
    steps: int = 0
    _of_trial: Any = None  # the subject that the trial's `begin` or `resume` returned
    _compared: Sequence[str] = ()
    _tolerant: Sequence[str] = ()

    def attempt(self, where: str, action: Callable[[], None]) -> None:
        """Run part of the check and record a failure; skip it if the subject has failed already.

        Raises:
            ArmFailedError: if the process cannot go on.
        """
        if self.reason is not None:
            return
        with activity.current().running(self.name):
            try:
                action()
                synchronize(self.device)  # errors of the device show here
            except MismatchError as mismatch:
                message = f"{where}, calls {'+'.join(self.path)}: {mismatch}"
                self.reason = Reason(code=ReasonCode.WRONG_RESULT, message=message)
            except BaseException as error:  # SystemExit too: a variant must not end the run
                if is_interrupt(error):
                    raise
                if is_fatal(error, self.device):
                    raise ArmFailedError(self.name, error, where) from error
                self.reason = reason_of(error, where)
        if self.reason is not None:
            self._of_trial = None

    def begin(self, where: str, trial: Trial, variant: type[Any]) -> None:
        """Set up the variant for a trial."""

        def set_up() -> None:
            self._of_trial = trial.begin(variant, self._guard)
            self._compared = trial.compared(self._of_trial)
            self._tolerant = trial.tolerant(self._of_trial)

        self.attempt(where, set_up)

    def resume(
        self,
        where: str,
        trial: Trial,
        arm: Arm,
        other: Any | None,
        steps: Sequence[Any],
        first: Arm | None = None,
    ) -> Sequence[Any] | None:
        """Rewind an arm that is being timed, and check it as this subject.

        Args:
            where: the place, for messages.
            trial: the trial to run it through.
            arm: the arm, in any state.
            other: a workload with other contents for it to take; `None`: it keeps its own.
            steps: the inputs that are timed.
            first: another arm of the same variant that has taken these contents just now.

        Returns:
            The inputs of its steps; `None` if it has failed.
        """
        inputs = steps

        def rewind() -> None:
            nonlocal inputs
            arm.rewind()
            if other is not None and first is not None:
                inputs = arm.driver.take_like(first.driver, other, steps)
            elif other is not None:
                inputs = arm.driver.take(other, steps)
            self._of_trial = trial.resume(arm.driver)

        self.attempt(where, rewind)
        return inputs if self.reason is None else None

    def step(
        self, where: str, trial: Trial, index: int, expected: Any, inputs: Any | None = None
    ) -> None:
        """Run one step and compare everything.

        Args:
            where: the place, for messages.
            trial: the trial to run.
            index: the number of the step.
            expected: the expected results, from the trial.
            inputs: the inputs that were timed; `None`: fresh ones.
        """
        if self.reason is not None:
            return
        way = trial.way(self._of_trial, index)
        if way:
            where += f", staged by {way}"

        def run_and_compare() -> None:
            trial.step(
                self._of_trial, self.path, index, expected, self.through, self._guard, inputs
            )
            self.steps += 1

        self.attempt(where, run_and_compare)

    def refill(self, trial: Trial, expected: Any, result: object) -> None:
        """Overwrite a call's result with the poison that outputs held before the step."""
        trial.refill(self._of_trial, self.path, expected, result)

    def run(self, action: Callable[[Any, Guard], None]) -> None:
        """Run an action that the trial has after its steps."""
        action(self._of_trial, self._guard)

    def _guard(self, *owners: object) -> AbstractContextManager[None]:
        """Return a guard on interpreted kernels: it refuses races and accesses outside `owners`."""
        return guard_on(self.device)(*owners)

    def outcome(self) -> CheckOutcome:
        """Return a report, or the reason for the failure."""
        if self.reason is not None:
            return CheckOutcome(None, self.reason)
        report = CheckReport(
            steps=self.steps,
            buffers=list(self._compared),
            differences=list(self.differences),
            within_tolerance=list(self._tolerant),
        )
        return CheckOutcome(report, None)
