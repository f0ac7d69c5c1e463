"""A variant under check: runs it, compares it, and keeps the outcome."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from bt_bench.names import Operation, Path
from bt_bench.results import CheckReport, Reason, ReasonCode
from bt_bench.variants import is_interrupt
from bt_bench.worker import activity
from bt_bench.worker.arm import bind
from bt_bench.worker.checking.buffers import (
    COMPARED,
    CUSTOM_OUTPUTS,
    Buffers,
    MismatchError,
    compare_addresses,
    compare_appends,
    compare_buffers,
    compare_inputs,
    compare_results,
    poison,
    spoiled_appends,
)
from bt_bench.worker.checking.differences import Differences, as_defined, as_returned
from bt_bench.worker.checking.interpreter_guard import OutOfBoundsError, RaceError, guarded_memory
from bt_bench.worker.checking.staging_ways import staging_way
from bt_bench.worker.failures import ArmFailedError, is_fatal, reason_of, synchronize
from bt_bench.worker.inputs import CustomOutputs, StepInputs
from bt_bench.worker.tasks import CheckOutcome
from bt_bench.workloads import Step

# Makes a call of an operation on some tables, and returns what the call returned.
Through = Callable[[Any, Operation, Callable[[], object]], object]


class Subject:
    """A variant under check on one path, and how it ended."""

    def __init__(
        self,
        name: str,
        path: Path,
        device: torch.device,
        through: Through | None = None,
        differences: Differences = frozenset(),
    ) -> None:
        self.name = name
        self.path = path
        self.differences = differences
        self._device = device
        self._through = through or _plainly
        self.tables: Any = None
        self.addresses: dict[str, int] = {}
        self.start: Any = None  # snapshot from before the first step
        self.outputs: CustomOutputs | None = None  # where the workload has them
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
        except OutOfBoundsError as error:
            self.reason = Reason(code=ReasonCode.OUT_OF_BOUNDS, message=f"{where}: {error}")
        except RaceError as error:
            self.reason = Reason(code=ReasonCode.RACE, message=f"{where}: {error}")
        except BaseException as error:  # SystemExit too: a variant must not end the run
            if is_interrupt(error):
                raise
            if is_fatal(error, self._device):
                raise ArmFailedError(self.name, error, where) from error
            self.reason = reason_of(error, where)
        finally:
            activity.current().leave(before)
        if self.reason is not None:
            self.tables = None

    def step(
        self,
        where: str,
        expected: Buffers,
        poison_value: int,
        step: StepInputs,
        given: Step,
        turn: int = 0,
    ) -> None:
        """Runs one step and compares everything.

        Args:
            where: the place, for messages.
            expected: what the reference's buffers hold.
            poison_value: what outputs hold before.
            step: the inputs.
            given: the step that the inputs were made from.
            turn: selects the way to stage; see `staging_way`.
        """
        way = staging_way(self.tables, turn)
        if way.title:
            where += f", staged by {way.title}"

        def run_and_compare() -> None:
            poison(self.tables, poison_value, step.outputs)
            with self.guard(step):
                way.stage(self.tables, step)
                compare_appends(given, step)
                with spoiled_appends(step):
                    results = run(self.tables, self.path, step, self._through)
            written = slice(given.num_tokens, len(step.positions))
            wanted = as_defined(
                self.differences, self.tables, expected, poison_value, given.num_reqs, written
            )
            compare_buffers(wanted, self.tables, poison_value, step.outputs)
            compare_results(results, self.tables, as_returned(self.differences, step))
            compare_inputs(given, step)
            if self.addresses:
                compare_addresses(self.addresses, self.tables)
            self.steps += 1

        self.attempt(where, run_and_compare)

    def guard(self, *given: object) -> AbstractContextManager[None]:
        """Keeps interpreted kernels within the tables and what they are given, and out of each
        other's way; on a GPU there is no such guard.
        """
        if self._device.type != "cpu":
            return nullcontext()
        return guarded_memory(self.tables, *given)

    def outcome(self) -> CheckOutcome:
        """How it ended."""
        if self.reason is not None:
            return CheckOutcome(None, self.reason)
        compared = COMPARED if self.outputs is None else [*COMPARED, CUSTOM_OUTPUTS]
        report = CheckReport(
            steps=self.steps, buffers=compared, differences=sorted(self.differences)
        )
        return CheckOutcome(report, None)


def run(
    tables: Any, path: Path, step: StepInputs, through: Through | None = None
) -> list[tuple[Operation, Any]]:
    """Makes the calls of a path on a step that is staged; returns what these returned."""
    make = through or _plainly
    return [
        (operation, make(tables, operation, bind(tables, operation, step))) for operation in path
    ]


def _plainly(_tables: Any, _operation: Operation, call: Callable[[], object]) -> object:
    return call()
