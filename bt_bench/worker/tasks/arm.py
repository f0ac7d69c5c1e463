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
    """The features that a variant lacks for a workload, as a reason; `None` if it lacks none."""
    missing = workload.features - getattr(variant, "features", frozenset())
    if not missing:
        return None
    return Reason(code=ReasonCode.UNSUPPORTED, message=f"lacks {', '.join(sorted(missing))}")


def inputs_on(device: torch.device, workload: Workload) -> Sequence[Any]:
    """The inputs of each step of a workload on a device; arms of one case share them."""
    suite = suite_of(workload)
    return inputs_of_steps(suite, driver_of(suite), device, workload)


class Arm:
    """A variant in the state before the first step of a workload.

    Args:
        name: the variant's name.
        variant: its class.
        workload: what it is driven through; its suite says how.
        device: where the variant's tensors live.
        first: another instance of the same arm, with which this one may be set up quicker.
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
        """The variant's object."""
        return self.driver.variant

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Attributes whatever raises in the block, or ends the process, to this arm.

        Work that is still running on the device when the block ends may fail in the block of
        another arm, so `synchronize` in the block unless the device is idle at its end.

        Raises:
            ArmFailedError: in place of any exception.
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
        """Restores the state before the first step, and waits until the device has done so."""
        self.driver.rewind()
        synchronize(self._device)

    def staging(self, step: Any) -> Callable[[], object]:
        """The call that stages a step, ready to be made.

        Raises:
            LookupError: if nothing is staged in this suite.
        """
        if self._staging is None:
            raise LookupError("the suite stages nothing; its operations must not set stages=True")
        return self.driver.call(self._staging, step)

    def finish_staging(self) -> None:
        """Runs what a step still lacks after it was staged alone."""
        if self._staging is not None:
            self.driver.finish(self._staging)

    def ready(
        self, operation: Operation, step: Any, *, staged: bool = False
    ) -> Callable[[], object]:
        """Runs what precedes an operation in its step, and returns its call, ready to be made.

        Args:
            operation: what is called.
            step: the next one; `finish` it before the one after it.
            staged: it has been staged already.
        """
        if operation.traits.stages and not operation.traits.on_host and not staged:
            self.staging(step)()
        self.driver.prepare(operation, step)
        return self.driver.call(operation, step)

    def finish(self, operation: Operation) -> None:
        """Runs what a step still lacks after an operation."""
        self.driver.finish(operation)

    def bind(self, operation: Operation, step: Any) -> Callable[[], object]:
        """The call that performs an operation on a step, ready to be made."""
        return self.driver.call(operation, step)
