"""A variant under check: runs it, compares it, and keeps the outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from bt_bench.base.names import Path
from bt_bench.protocol import Guard, MismatchError, Through, Trial
from bt_bench.protocol.driver import plainly
from bt_bench.results import CheckReport, Reason, ReasonCode
from bt_bench.variants import is_interrupt
from bt_bench.worker.checking.interpreter_guard import guarded_memory
from bt_bench.worker.machine import activity
from bt_bench.worker.tasks.arm import Arm
from bt_bench.worker.tasks.failures import ArmFailedError, is_fatal, reason_of, synchronize
from bt_bench.worker.tasks.tasks import CheckOutcome

__all__ = ["Subject", "Through"]


class Subject:
    """A variant under check on one path, and how it ended."""

    def __init__(
        self,
        name: str,
        path: Path,
        device: torch.device,
        through: Through | None = None,
        differences: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.path = path
        self.differences = list(differences)
        self._device = device
        self.through = through or plainly
        self._of_trial: Any = None  # what the trial keeps of the variant
        self._compared: Sequence[str] = ()
        self._tolerant: Sequence[str] = ()
        self.reason: Reason | None = None
        self.steps = 0

    def attempt(self, where: str, action: Callable[[], None]) -> None:
        """Runs part of the check unless the subject has failed, and notes a failure.

        Raises:
            ArmFailedError: when nothing more can be run in this process.
        """
        if self.reason is not None:
            return
        before = activity.current().enter(self.name)
        try:
            action()
            synchronize(self._device)  # errors of the device show here
        except MismatchError as mismatch:
            calls = "+".join(self.path)
            self.reason = Reason(
                code=ReasonCode.WRONG_RESULT, message=f"{where}, calls {calls}: {mismatch}"
            )
        except BaseException as error:  # SystemExit too: a variant must not end the run
            if is_interrupt(error):
                raise
            if is_fatal(error, self._device):
                raise ArmFailedError(self.name, error, where) from error
            self.reason = reason_of(error, where)
        finally:
            activity.current().leave(before)
        if self.reason is not None:
            self._of_trial = None

    def begin(self, where: str, trial: Trial, variant: type[Any]) -> None:
        """Sets the variant up for a trial."""

        def set_up() -> None:
            self._of_trial = trial.begin(variant, self._guard)
            self._compared = trial.compared(self._of_trial)
            self._tolerant = trial.tolerant(self._of_trial)

        self.attempt(where, set_up)

    def resume(
        self, where: str, trial: Trial, arm: Arm, other: Any | None, steps: Sequence[Any]
    ) -> Sequence[Any] | None:
        """Takes an arm that is timed, before its first step again.

        Args:
            where: the place, for messages.
            trial: of what it runs now.
            arm: in any state.
            other: the other contents that it takes; `None`: it keeps its own.
            steps: the inputs that are timed.

        Returns:
            The inputs of its steps; `None` if it has failed.
        """
        inputs = steps

        def rewind() -> None:
            nonlocal inputs
            arm.rewind()
            if other is not None:
                inputs = arm.driver.take(other, steps)
            self._of_trial = trial.resume(arm.driver)

        self.attempt(where, rewind)
        return inputs if self.reason is None else None

    def step(
        self, where: str, trial: Trial, index: int, expected: Any, inputs: Any | None = None
    ) -> None:
        """Runs one step and compares everything.

        Args:
            where: the place, for messages.
            trial: whose step it is.
            index: of the step.
            expected: from the trial.
            inputs: those that were timed; `None`: fresh ones.
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
        """Fills what a call returned with what outputs held before the step."""
        trial.refill(self._of_trial, self.path, expected, result)

    def run(self, action: Callable[[Any, Guard], None]) -> None:
        """Runs what a trial tries after the steps."""
        action(self._of_trial, self._guard)

    def _guard(self, *owners: object) -> AbstractContextManager[None]:
        """Keeps interpreted kernels within the tensors of some objects, and out of each other's
        way; on a GPU there is no such guard.
        """
        return guarded_memory(*owners) if self._device.type == "cpu" else nullcontext()

    def outcome(self) -> CheckOutcome:
        """How it ended."""
        if self.reason is not None:
            return CheckOutcome(None, self.reason)
        report = CheckReport(
            steps=self.steps,
            buffers=list(self._compared),
            differences=self.differences,
            within_tolerance=list(self._tolerant),
        )
        return CheckOutcome(report, None)
