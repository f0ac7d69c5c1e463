"""What measuring needs from the outside: a clock and a device. Tests script both."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """A monotonic host clock."""

    def now_ns(self) -> int:
        """Nanoseconds since some fixed moment."""
        ...


class DevicePort(Protocol):
    """What timing needs of a device."""

    def synchronize(self) -> None:
        """Waits until the device is idle."""
        ...

    def record_start(self) -> None:
        """Enqueues the event before the timed call."""
        ...

    def record_end(self) -> None:
        """Enqueues the event after the timed call."""
        ...

    def elapsed_us(self) -> float:
        """Time between the two events, in µs; the device must be idle."""
        ...


class SystemClock:
    """`time.perf_counter_ns`."""

    now_ns = staticmethod(time.perf_counter_ns)


class CudaPort:
    """The current CUDA stream, with one pair of events that is used again and again."""

    def __init__(self) -> None:
        event: Any = torch.cuda.Event  # untyped in torch
        self._start = event(enable_timing=True)
        self._end = event(enable_timing=True)
        self.synchronize = torch.cuda.synchronize
        self.record_start = self._start.record
        self.record_end = self._end.record

    def elapsed_us(self) -> float:
        """Time between the two events, in µs; torch gives ms in single precision."""
        return round(float(self._start.elapsed_time(self._end)) * 1e3, 3)
