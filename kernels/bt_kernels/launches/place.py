"""The device of the tables, and how host code works on it whatever device is current."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any, TypeVar

import torch

_Result = TypeVar("_Result")


class Place:
    """A device that host code works for, whatever device is current in its thread.

    Triton's launches, and torch's events and graphs, work on the current device, so they must be
    called by `run` or within `current`. Code that names its device needs neither: that is most of
    torch, and `native`. Afterwards the previous device is current again, also after an exception.

    Args:
        device: with its index, if it is a CUDA device.
        launcher: the compiled module of that name; `None`: nothing is launched by the driver.

    Attributes:
        device, launcher: as they were given.
        index: of a CUDA device; else `None`.
        find_current: returns the index of the current device, and `index` where that is `None`.
        native: the device as the compiled module has it, which makes its context current by itself;
            `None` without that module.
    """

    def __init__(self, device: torch.device, launcher: ModuleType | None = None) -> None:
        self.device = device
        self.launcher: Any = launcher
        self.index = device.index if device.type == "cuda" else None
        # Not `torch.cuda.current_device`, which is several times slower.
        self.find_current: Callable[[], int | None] = (
            _none if self.index is None else torch._C._cuda_getDevice
        )
        self.native: Any = None if launcher is None else launcher.Device(self.index)
        if self.index is not None:
            # Torch's function without its Python wrapper: it is called several times in a step.
            self._current_is_capturing = torch._C._cuda_isCurrentStreamCapturing

    def run(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        """Calls with the device current."""
        if self.find_current() == self.index:
            return call(*arguments)
        with self._switched():
            return call(*arguments)

    def current(self) -> AbstractContextManager[None]:
        """Makes the device current within a `with` statement."""
        return nullcontext() if self.find_current() == self.index else self._switched()

    def is_capturing(self) -> bool:
        """Whether the current stream of this device, a CUDA device, is being captured."""
        if self.find_current() == self.index:
            return self._current_is_capturing()
        with self._switched():
            return self._current_is_capturing()

    @contextmanager
    def _switched(self) -> Iterator[None]:
        # Torch restores a device by its primary context. So it gets its own entry on the thread's
        # stack of contexts, and whatever is below that stays.
        if self.native is not None:
            self.native.push()
        try:
            with torch.cuda.device(self.device):
                yield
        finally:
            if self.native is not None:
                self.native.pop()


def _none() -> None:
    return None
