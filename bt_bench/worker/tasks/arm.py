"""An arm: one variant, set up for one workload, with the workload's steps on its device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from bt_bench.protocol import Operation, Workload, driver_of, inputs_of_steps, suite_of
from bt_bench.results import Reason, ReasonCode
from bt_bench.variants import is_interrupt
from bt_bench.worker.machine import activity
from bt_bench.worker.tasks.failures import ArmFailedError, synchronize


def lacking(variant: type[Any], workload: Workload) -> Reason | None:
    """Return the features that a variant lacks for a workload, as a reason, or `None`."""
    missing = workload.features - getattr(variant, "features", frozenset())
    if not missing:
        return None
    return Reason(code=ReasonCode.UNSUPPORTED, message=f"lacks {', '.join(sorted(missing))}")


def inputs_on(device: torch.device, workload: Workload) -> Sequence[Any]:
    """Return the inputs of each step of a workload on a device; arms of one case share them."""
    suite = suite_of(workload)
    return inputs_of_steps(suite, driver_of(suite), device, workload)


class Arm:
    """A variant in the state before the first step of a workload.

    Args:
        name: the variant's name.
        variant: its class.
        workload: the workload to run; its suite provides the driver.
        device: the device of the variant's tensors.
        first: another instance of the same arm, which may speed up the set-up of this one.
    """

    def __init__(
        self,
        name: str,
        variant: type[Any],
        workload: Workload,
        device: torch.device,
        first: Arm | None = None,
    ) -> None:
        self.name = name
        self._device = device
        suite = suite_of(workload)
        self._staging = suite.staging
        with self.guarded():
            kind = driver_of(suite)
            if first is None:
                self.driver = kind(variant, workload, device)
            else:
                self.driver = kind.like(first.driver, variant, workload, device)
            synchronize(device)

    @property
    def variant(self) -> Any:
        """The instance of the variant's class."""
        return self.driver.variant

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Attribute any exception in the block, or the end of the process, to this arm.

        Work that still runs on the device when the block ends may fail in another arm's block. Call
        `synchronize` in the block unless the device is idle at its end.

        Raises:
            ArmFailedError: in place of any exception but Ctrl-C.
        """
        before = activity.current().enter(self.name)
        try:
            yield
        except BaseException as error:  # SystemExit too: a variant must not end the run
            if is_interrupt(error):
                raise
            raise ArmFailedError(self.name, error) from error
        finally:
            activity.current().leave(before)

    def rewind(self) -> None:
        """Restore the state before the first step, and wait for the device to do so."""
        self.driver.rewind()
        synchronize(self._device)

    def staging(self, step: Any) -> Callable[[], object]:
        """Return the call that stages a step, ready to be made.

        Raises:
            LookupError: if the suite stages nothing.
        """
        if self._staging is None:
            raise LookupError("the suite stages nothing; its operations must not set stages=True")
        return self.driver.call(self._staging, step)

    def finish_staging(self) -> None:
        """Run the rest of a step after the step was staged alone."""
        if self._staging is not None:
            self.driver.finish(self._staging)

    def ready(
        self, operation: Operation, step: Any, *, staged: bool = False
    ) -> Callable[[], object]:
        """Run the part of a step before an operation, and return the operation's call.

        Args:
            operation: the operation to call.
            step: the next step; `finish` it before the one after it.
            staged: whether the step has been staged already.
        """
        if operation.traits.stages and not operation.traits.on_host and not staged:
            self.staging(step)()
        self.driver.prepare(operation, step)
        return self.driver.call(operation, step)

    def finish(self, operation: Operation) -> None:
        """Run the rest of a step after an operation."""
        self.driver.finish(operation)

    def bind(self, operation: Operation, step: Any) -> Callable[[], object]:
        """Return the call that performs an operation on a step, ready to be made."""
        return self.driver.call(operation, step)
