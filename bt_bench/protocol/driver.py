"""Drivers of variants and trials that check them: the parts of a suite that need a device.

This module does not load torch; the suites' own subclasses do when a worker asks for them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bt_bench.base.names import Operation, Path

if TYPE_CHECKING:
    import torch

Guard = Callable[..., AbstractContextManager[None]]
"""Keeps interpreted kernels within the tensors of a variant and of the other arguments."""

Through = Callable[[Any, Operation, Callable[[], object]], object]
"""Calls an operation of a variant the way it was timed, and returns the call's result."""


class MismatchError(Exception):
    """A buffer or result of a variant differs from the expected one."""


def plainly(_variant: Any, _operation: Operation, call: Callable[[], object]) -> object:
    """Make the call, and return its result."""
    return call()


class Driver(ABC):
    """A variant, set up in the state before the first step of a workload.

    There is one driver for each instance of a variant. Only the calls that it returns are timed.

    Attributes:
        variant: the variant's object. If it names `launch_paths`, its `launch_path` is set before
            calls; if it names `capturable`, calls of these methods are also captured into graphs.

    Args:
        variant: class of the variant.
        workload: the workload to drive it through.
        device: the device of its tensors.
    """

    variant: Any
    tolerances: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """Relative and absolute tolerance of each output that may differ from the reference's."""

    @abstractmethod
    def __init__(self, variant: type[Any], workload: Any, device: torch.device) -> None: ...

    @classmethod
    def like(cls, first: Any, variant: type[Any], workload: Any, device: torch.device) -> Driver:
        """Create another instance of a variant, in the state before the first step.

        This method sets it up anew; a driver may reuse data of the first instance to be quicker.

        Args:
            first: the driver of the first instance, in any state.
            variant: its class, or a copy of it.
            workload: the same workload.
            device: the same device.
        """
        return cls(variant, workload, device)

    @classmethod
    @abstractmethod
    def inputs_on(cls, device: torch.device, workload: Any) -> list[Any]:
        """Return the inputs of each step on the device, where an engine already has them.

        All arms of a case share them, so a variant must only read them.
        """

    @abstractmethod
    def call(self, operation: Operation, step: Any) -> Callable[[], object]:
        """Return the call that performs an operation, ready to be made; only that is timed.

        Some measurements make a call several times on one step. Each call must do the same as the
        first, unless the operation consumes staged data; then it is staged again.

        Args:
            operation: one of the suite's.
            step: inputs of the step, from `inputs_on`.
        """

    @abstractmethod
    def rewind(self) -> None:
        """Restore the state before the first step; this need not wait for the device."""

    def prepare(self, operation: Operation, step: Any) -> None:  # noqa: B027  # optional
        """Do the untimed work that must precede an operation in its step, after staging.

        Checks do it again before they repeat a call. Timing repeats calls without it.
        """

    def finish(self, operation: Operation) -> None:  # noqa: B027  # optional
        """Do the untimed work that a step still lacks after an operation."""

    def may_be_empty(self, operation: Operation, step: Any) -> bool:
        """Return whether a call may launch nothing on this step, such as for lack of work.

        On any other step, a profiler that recorded no launch has lost its records.
        """
        return False

    def undo(self) -> Callable[[], object]:
        """Return a call that restores the host's state, so a step can be staged once more."""
        return lambda: None

    @classmethod
    def with_other_contents(cls, workload: Any, rng: np.random.Generator) -> Any | None:
        """Return a workload of the same sizes with other contents, which `take` accepts.

        Without one (`None`), an instance can only be checked on the inputs it was timed with. Then
        a variant that remembers results instead of computing them looks right.
        """
        return None

    def take(self, workload: Any, steps: Sequence[Any]) -> Sequence[Any]:
        """Put the instance before the first step of a workload from `with_other_contents`.

        `rewind` returns it to its own workload. This is not timed. Only the state and the staged
        data may differ: all arms share the tensors of `steps`, and nobody may write to these.

        Args:
            workload: made from the workload that the instance was set up with.
            steps: the timed inputs.

        Returns:
            The inputs of the workload, in the same tensors.

        Raises:
            NotImplementedError: by default, as it is not called without `with_other_contents`.
        """
        raise NotImplementedError(f"{type(self).__name__} takes no other contents")

    def take_like(self, first: Any, workload: Any, steps: Sequence[Any]) -> Sequence[Any]:
        """Put the instance where `take` has put another one of the same variant.

        This method calls `take`; a driver may copy the other instance's state to be quicker.

        Args:
            first: the driver of that instance, which has run no step since.
            workload: as given to it.
            steps: as given to it.

        Returns:
            As `take`.
        """
        return self.take(workload, steps)

    def replayed(self, call: Callable[[], object]) -> None:  # noqa: B027  # optional
        """Notify the variant that a captured call was replayed, which it cannot see itself."""

    # For the common check; a suite with a trial of its own need not define these.

    trial: ClassVar[type[Trial] | None] = None
    """The class that checks variants; `None`: a check by `outputs`, `state` and `inputs_of`."""

    def outputs(self) -> Mapping[str, torch.Tensor]:
        """Return all tensors that the operations write afresh in each step, whole, by name.

        They are filled with garbage before each step, and compared whole with the reference's after
        it: elements that an operation must not write have to keep the garbage. The tensors must
        stay the same for the driver's lifetime, since a captured graph holds their addresses.
        """
        return {}

    def state(self) -> Mapping[str, torch.Tensor]:
        """Return the tensors that operations change and later steps read, whole, by name.

        They are compared after each step, and must stay the same for the driver's lifetime.
        """
        return {}

    def inputs_of(self, step: Any) -> Mapping[str, torch.Tensor]:
        """Return the tensors of a step by name; they must not be changed."""
        return {}

    def results(self, operation: Operation, step: Any) -> Mapping[str, torch.Tensor] | None:
        """Return the required results: views of outputs by name, in the returned tuple's order.

        A call returns a single tensor as such. `None`: the result of the call does not matter.
        """
        return None

    @classmethod
    def undefined_on(cls, variant: type[Any], workload: Any) -> str | None:
        """Return why a variant is not run on a workload, if it leaves something undefined there."""
        return None

    @classmethod
    def tamed(cls, workload: Any, variant: type[Any]) -> Any:
        """Return a conformance workload without anything that a variant leaves undefined.

        Usually it is the same workload.
        """
        return workload

    @classmethod
    def differences_of(cls, variant: type[Any]) -> list[str]:
        """Return the names of a variant's own definitions that it is checked by; usually none."""
        return []


class Trial(ABC):
    """One pass of a check through a workload: variants beside the reference.

    The trial's record of a variant is called its subject here.

    Args:
        reference: class of the reference.
        workload: the workload to check on.
        device: where the variants run; the reference runs on the CPU.
        rng: for other contents, garbage and poison; `None`: the workload as it is, on the very
            inputs that were timed.
        paths: the paths of the operations to check.

    Attributes:
        is_common: whether it makes the common check, by `outputs` and `state` of the driver, and
            perhaps more. Variants can then be explored by the common scenarios.
    """

    is_common: ClassVar[bool] = False

    @abstractmethod
    def __init__(
        self,
        reference: type[Any],
        workload: Any,
        device: torch.device,
        rng: np.random.Generator | None,
        paths: Sequence[Path],
    ) -> None: ...

    @property
    @abstractmethod
    def num_steps(self) -> int:
        """Number of steps of the pass."""

    @abstractmethod
    def begin(self, variant: type[Any], guard: Guard) -> Any:
        """Set up a variant, and return its subject."""

    @abstractmethod
    def resume(self, driver: Any) -> Any:
        """Return the subject of a variant that has been timed, back before its first step."""

    @abstractmethod
    def expect(self, index: int) -> Any:
        """Run the reference through a step, and return the state expected after it."""

    def way(self, subject: Any, index: int) -> str:
        """Return how a step is staged, for messages; empty if there is only one way."""
        return ""

    @abstractmethod
    def step(
        self,
        subject: Any,
        path: Path,
        index: int,
        expected: Any,
        through: Through,
        guard: Guard,
        inputs: Any | None = None,
    ) -> None:
        """Run a subject through a step, and compare everything.

        Args:
            subject: from `begin` or `resume`.
            path: names of the operations to call, in order.
            index: of the step; they come in order.
            expected: from `expect`.
            through: makes each call.
            guard: holds while the variant runs.
            inputs: the inputs that were timed; `None`: fresh ones.

        Raises:
            MismatchError: naming the first thing that differs.
        """

    def refill(  # noqa: B027  # optional
        self, subject: Any, path: Path, expected: Any, result: object
    ) -> None:
        """Overwrite a call's result with the contents that the outputs had before the step.

        After that, a repeated call is only right if it does all of its work. If a trial does not
        offer this, repeated calls are checked less well.

        Args:
            subject: the subject that made the call.
            path: path of the operation.
            expected: from `expect`.
            result: the call's result.
        """

    def further(self) -> Iterator[tuple[str, Callable[[Any, Guard], None]]]:
        """Yield checks for after the steps: a title, and a function that runs it on a subject."""
        yield from ()

    @abstractmethod
    def compared(self, subject: Any) -> Sequence[str]:
        """Return the names of everything compared, for the report."""

    def tolerant(self, subject: Any) -> Sequence[str]:
        """Return the names of the compared buffers that may differ by a tolerance; here none.

        Args:
            subject: from `begin`.
        """
        return ()
