"""The device of the tables, and host code that works on it whatever device is current."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import triton

if TYPE_CHECKING:
    from bt_kernels.native import Launcher
    from bt_kernels.native.launcher import Device

_Result = TypeVar("_Result")


def written() -> AbstractContextManager[None]:
    """Allow torch to write to any tensors: outside of inference mode, its tensors are read-only."""
    return torch.inference_mode()


class Place:
    """A device that host code works for, whatever device is current in its thread.

    Triton's launches, and torch's events and graphs, work on the current device, so they must be
    called by `run` or within `current`. Code that names its device needs neither: most of torch,
    and `native`. Afterwards the previous device is current again, also after an exception.

    Args:
        device: with its index, if it is a CUDA device.
        launcher: the compiled module of that name; `None`: nothing is launched by the driver.
        pinned: whether pinned memory works with the device; see `why_not_pinned`.

    Attributes:
        device, launcher, pinned: as they were given.
        index: index of a CUDA device; else `None`.
        native: the compiled module's object for the device, which makes its context current by
            itself; `None` without that module.
        python_launches: launches on the device that did not go through `native`.
        is_current: returns whether the device is current; always, if it is not a CUDA device.
        is_capturing: returns whether the current stream of the device is being captured; never, if
            it is not a CUDA device. Raises `RuntimeError` when the driver cannot determine it.
    """

    def __init__(
        self, device: torch.device, launcher: Launcher | None = None, *, pinned: bool = True
    ) -> None:
        self.device = device
        self.launcher = launcher
        self.pinned = pinned
        self.index = device.index if device.type == "cuda" else None
        self.native: Device | None = (
            None if launcher is None else launcher.Device(cast("int", self.index))
        )
        self.python_launches = 0
        # Both are called several times in a step, so each is chosen once, as a function.
        self.is_current: Callable[[], bool] = self._find_is_current()
        self.is_capturing: Callable[[], bool] = self._find_is_capturing()

    def _find_is_current(self) -> Callable[[], bool]:
        if self.index is None:
            return lambda: True
        if self.native is not None:
            return self.native.is_current
        # Not `torch.cuda.current_device`, which is several times slower.
        find_current, index = torch._C._cuda_getDevice, self.index
        return lambda: find_current() == index

    def _find_is_capturing(self) -> Callable[[], bool]:
        if self.index is None:
            return lambda: False
        if self.native is not None:
            # Takes half the time of torch's function, which knows only the current device.
            is_captured, index = self.native.is_captured, self.index
            current_stream = triton.runtime.driver.active.get_current_stream
            return lambda: is_captured(current_stream(index))
        is_current, device = self.is_current, self.device
        current_is_capturing: Callable[[], bool] = torch._C._cuda_isCurrentStreamCapturing

        def is_capturing() -> bool:
            if is_current():
                return current_is_capturing()
            with torch.cuda.device(device):
                return current_is_capturing()

        return is_capturing

    @property
    def launches(self) -> int:
        """Return the number of kernels and captured graphs that were launched here so far.

        Includes kernels that were launched into a capture; replays by torch are not included.
        """
        return self.python_launches + (0 if self.native is None else self.native.launches)

    def run(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        """Call a function with the device current."""
        if self.is_current():
            return call(*arguments)
        with self._switched():
            return call(*arguments)

    def current(self) -> AbstractContextManager[None]:
        """Make the device current within a `with` statement."""
        return nullcontext() if self.is_current() else self._switched()

    @contextmanager
    def _switched(self) -> Iterator[None]:
        # Torch restores a device by its primary context. With an entry of its own on the thread's
        # stack of contexts, it leaves the entries below alone.
        if self.native is not None:
            self.native.push()
        try:
            with torch.cuda.device(self.device):
                yield
        finally:
            if self.native is not None:
                self.native.pop()
