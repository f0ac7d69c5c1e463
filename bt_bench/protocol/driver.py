"""How a suite drives a variant, and how it checks one: the parts that need a device.

This module loads no torch; the suites' own subclasses do, when a worker asks for them.
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
"""Makes a call of an operation of a variant as it was timed, and returns what the call returned."""


class MismatchError(Exception):
    """A buffer or result of a variant is not what it must be."""


def plainly(_variant: Any, _operation: Operation, call: Callable[[], object]) -> object:
    """Just makes the call."""
    return call()


class Driver(ABC):
    """A variant, set up in the state before the first step of a workload.

    One is made for each instance of a variant. Whatever it does before it returns a call is not
    timed.

    Attributes:
        variant: the variant's object. If it names `launch_paths`, its `launch_path` is set before
            calls; if it names `capturable`, calls of these methods are also captured into graphs.

    Args:
        variant: class of the variant.
        workload: what it is driven through.
        device: where its tensors live.
    """

    variant: Any
    tolerances: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """Per output that may differ from the reference's: relative and absolute tolerance."""

    @abstractmethod
    def __init__(self, variant: type[Any], workload: Any, device: torch.device) -> None: ...

    @classmethod
    def like(cls, first: Any, variant: type[Any], workload: Any, device: torch.device) -> Driver:
        """Another instance of a variant, in the state before the first step; here set up anew.

        A driver may make it quicker with what the first one knows.

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
        """The inputs of each step on the device, where an engine has them already.

        All arms of a case share them, so a variant must only read them.
        """

    @abstractmethod
    def call(self, operation: Operation, step: Any) -> Callable[[], object]:
        """The call that performs an operation, ready to be made: only the call itself is timed.

        Some measurements make a call several times on one step: each must do what the first did,
        unless the operation consumes what was staged, in which case it is staged again.

        Args:
            operation: one of the suite's.
            step: inputs of the step, from `inputs_on`.
        """

    @abstractmethod
    def rewind(self) -> None:
        """Puts back the state before the first step; need not wait for the device."""

    def prepare(self, operation: Operation, step: Any) -> None:  # noqa: B027  # optional
        """Does what must precede an operation in its step, after staging; it is not timed."""

    def finish(self, operation: Operation) -> None:  # noqa: B027  # optional
        """Does what a step still lacks after an operation; it is not timed."""

    def may_be_empty(self, operation: Operation, step: Any) -> bool:
        """Whether a call may launch nothing on this step, such as one without any work.

        Of other steps, a profiler that recorded no launch has lost its records.
        """
        return False

    def undo(self) -> Callable[[], object]:
        """A call that puts back what the host knows, so that a step can be staged once more."""
        return _nothing

    @classmethod
    def with_other_contents(cls, workload: Any, rng: np.random.Generator) -> Any | None:
        """A workload of the same sizes with other contents, which `take` accepts.

        `None`: there is none, and an instance can only be checked on what it was timed with. Then
        results that a variant remembers, rather than works out, look right.
        """
        return None

    def take(self, workload: Any, steps: Sequence[Any]) -> Sequence[Any]:
        """Puts the instance before the first step of a workload from `with_other_contents`.

        `rewind` puts it back to its own. This is not timed. What differs has to be in the state
        and in what is staged: all arms share the tensors of `steps`, which nobody may write to.

        Args:
            workload: made from the one that the instance was set up with.
            steps: the inputs that are timed.

        Returns:
            The inputs of the workload, in the same tensors.

        Raises:
            NotImplementedError: by default, as `with_other_contents` never asks for it then.
        """
        raise NotImplementedError(f"{type(self).__name__} takes no other contents")

    def replayed(self, call: Callable[[], object]) -> None:  # noqa: B027  # optional
        """Tells the variant that a captured call was replayed, since it does not see that."""

    # What the common check needs; a suite with a trial of its own need not give it.

    trial: ClassVar[type[Trial] | None] = None
    """How variants are checked; `None`: by `outputs`, `state` and `inputs_of`."""

    def outputs(self) -> Mapping[str, torch.Tensor]:
        """Everything that the operations write afresh in each step, whole, by name.

        It is filled with garbage before each step, and compared whole with the reference's after
        it: what an operation must not write has to keep the garbage. The tensors must be the same
        ones for as long as the driver lives, since a captured graph holds their addresses.
        """
        return {}

    def state(self) -> Mapping[str, torch.Tensor]:
        """What operations change and later steps read, whole, by name; compared after each step.

        The tensors must be the same ones for as long as the driver lives.
        """
        return {}

    def inputs_of(self, step: Any) -> Mapping[str, torch.Tensor]:
        """The tensors of a step by name, which must not be changed."""
        return {}

    def results(self, operation: Operation, step: Any) -> Mapping[str, torch.Tensor] | None:
        """What a call must return: views of outputs by name, in the order of the returned tuple.

        A single tensor is returned as such. `None`: what is returned does not matter.
        """
        return None

    @classmethod
    def undefined_on(cls, variant: type[Any], workload: Any) -> str | None:
        """What a variant leaves undefined on a workload, as the reason not to run it."""
        return None

    @classmethod
    def tamed(cls, workload: Any, variant: type[Any]) -> Any:
        """A conformance workload without what a variant leaves undefined; usually the same one."""
        return workload

    @classmethod
    def differences_of(cls, variant: type[Any]) -> list[str]:
        """Names of the definitions of its own that a variant is checked by; usually none."""
        return []


def _nothing() -> None:
    """Does nothing."""


class Trial(ABC):
    """One pass of a check through a workload: the reference beside variants.

    What it keeps of a variant is called its subject here.

    Args:
        reference: class of the reference.
        workload: what is checked.
        device: where the variants run; the reference runs on the CPU.
        rng: for other contents, garbage and poison; `None`: the workload as it is, on the very
            inputs that were timed.
        paths: the paths of the operations that are checked.
    """

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
        """Steps of the pass."""

    @abstractmethod
    def begin(self, variant: type[Any], guard: Guard) -> Any:
        """Sets a variant up, and returns its subject."""

    @abstractmethod
    def resume(self, driver: Any) -> Any:
        """The subject of a variant that has been timed, before its first step again."""

    @abstractmethod
    def expect(self, index: int) -> Any:
        """Runs the reference through a step, and returns what must hold after it."""

    def way(self, subject: Any, index: int) -> str:
        """How a step is staged, for messages, where there are several ways."""
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
        """Runs a subject through a step, and compares everything.

        Args:
            subject: from `begin` or `resume`.
            path: names of the operations to call, in order.
            index: of the step; they come in order.
            expected: from `expect`.
            through: makes each call.
            guard: holds while the variant runs.
            inputs: those that were timed; `None`: fresh ones, of its own.

        Raises:
            MismatchError: naming the first thing that differs.
        """

    def refill(  # noqa: B027  # optional
        self, subject: Any, path: Path, expected: Any, result: object
    ) -> None:
        """Fills what a call returned with what outputs held before the step.

        After that only a call that does all of its work is right once more. Where a trial does not
        offer it, calls that are repeated are checked less well.

        Args:
            subject: whose call it was.
            path: of the operation.
            expected: from `expect`.
            result: what the call returned.
        """

    def further(self) -> Iterator[tuple[str, Callable[[Any, Guard], None]]]:
        """What is tried after the steps: a title, and what does it to a subject."""
        yield from ()

    @abstractmethod
    def compared(self, subject: Any) -> Sequence[str]:
        """Names of what is compared, for the report."""

    def tolerant(self, subject: Any) -> Sequence[str]:
        """Return the names of the compared buffers that may differ by a tolerance; here none.

        Args:
            subject: from `begin`.
        """
        return ()
