"""Devices that are not there: which is current, as the driver and torch have it in a thread."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import torch
import triton

FIRST_STREAM = 17


class ScriptedDevices:
    """The stack of contexts that a driver has for a thread; the device of the last is current.

    A context is its kind and its device, such as `("primary", 1)`. Torch sets the last one, as
    `cudaSetDevice` does, and knows primary ones alone.

    The current stream of a device has the number of the device and `FIRST_STREAM`.

    Args:
        monkeypatch: of the test in which torch is to believe it.
        contexts: of the thread, at first.
    """

    def __init__(self, monkeypatch, *contexts):
        self.contexts = list(contexts)
        self.capturing = set()  # devices
        monkeypatch.setattr(torch._C, "_cuda_getDevice", self.find_current, raising=False)
        monkeypatch.setattr(torch.cuda, "device", self._switched)
        active = SimpleNamespace(get_current_stream=lambda index: FIRST_STREAM + index)
        monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=active))
        monkeypatch.setattr(
            torch._C,
            "_cuda_isCurrentStreamCapturing",
            lambda: self.find_current() in self.capturing,
            raising=False,
        )

    def find_current(self):
        return self.contexts[-1][1] if self.contexts else 0

    @contextmanager
    def _switched(self, device):
        before = self.find_current()
        self._set(device.index)
        try:
            yield
        finally:
            self._set(before)

    def _set(self, index):
        if self.find_current() != index:
            self.contexts[-1:] = [("primary", index)]

    def launcher(self):
        """A module like the compiled one, as far as `Place` needs it."""
        return _Launcher(self)


class _Launcher:
    def __init__(self, devices):
        self._devices = devices

    def Device(self, index):  # noqa: N802 - a class of the compiled module
        return _Device(self._devices, index)


class _Device:
    def __init__(self, devices, index):
        self._devices = devices
        self.index = index

    def push(self):
        self._devices.contexts.append(("primary", self.index))

    def pop(self):
        self._devices.contexts.pop()

    def is_current(self):
        return bool(self._devices.contexts) and self._devices.find_current() == self.index

    def is_captured(self, stream):
        return stream - FIRST_STREAM in self._devices.capturing
