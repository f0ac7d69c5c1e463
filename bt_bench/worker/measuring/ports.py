"""Ports to the outside: a clock and a device, which tests replace by scripted ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch

from bt_bench.worker.measuring.device_kernels import CacheFlush, launch_spin

Call = Callable[[], object]  # ready to be made


class Clock(Protocol):
    """A monotonic host clock."""

    def now_ns(self) -> int:
        """Return the nanoseconds since some fixed moment."""


class Replayable(Protocol):
    """A captured graph."""

    def replay(self) -> None:
        """Enqueue the captured calls."""


class DevicePort(Protocol):
    """The device as timing sees it; everything is enqueued on the current stream."""

    def synchronize(self) -> None:
        """Wait until the device is idle."""

    def record_start(self) -> None:
        """Enqueue the event before the timed call."""

    def record_end(self) -> None:
        """Enqueue the event after the timed call."""

    def start_has_passed(self) -> bool:
        """Return whether the device has reached the event before the timed call."""

    def elapsed_us(self) -> float:
        """Return the time between the two events, in µs; the device must be idle."""

    def occupy(self, duration_us: float) -> None:
        """Enqueue work that keeps the device busy for a known time."""

    def flush_l2(self) -> None:
        """Enqueue a write of more bytes than the L2 cache holds."""

    def capture(self, call: Call, count: int) -> Replayable:
        """Capture `count` calls into a graph, without running them."""


class SystemClock:
    """`time.perf_counter_ns`."""

    now_ns = staticmethod(time.perf_counter_ns)


class CudaPort:
    """The current CUDA stream, with one reused pair of events.

    Its functions are looked up once, before any variant is imported.
    """

    def __init__(self) -> None:
        event: Any = torch.cuda.Event  # untyped in torch
        self._start = event(enable_timing=True)
        self._end = event(enable_timing=True)
        self.flush_l2 = CacheFlush()
        launch_spin(0)  # compiles here rather than in front of a timed call
        self.synchronize = torch.cuda.synchronize
        self.record_start = self._start.record
        self.record_end = self._end.record
        self.start_has_passed = self._start.query
        self._elapsed_ms = self._start.elapsed_time
        stream: Any = torch.cuda.Stream  # untyped in torch
        self._capturing = stream()
        self._pool = torch.cuda.graph_pool_handle()
        self._first = self.capture(partial(launch_spin, 0), 1)  # a pool lives as long as its graphs

    def elapsed_us(self) -> float:
        """Return the time between the two events, in µs; torch reports ms in single precision."""
        return round(float(self._elapsed_ms(self._end)) * 1e3, 3)

    def occupy(self, duration_us: float) -> None:
        """Enqueue a kernel that spins for `duration_us`."""
        launch_spin(int(duration_us * 1e3))

    def capture(self, call: Call, count: int) -> Replayable:
        """Capture `count` calls into a CUDA graph, on a separate stream.

        `torch.cuda.graph` would also empty the caching allocator, at the expense of the next step.
        All graphs share one pool of memory, since no two are replayed at once. With a pool each,
        calls that allocate fill the device: torch reclaims no dead pool during a capture.
        """
        graph = torch.cuda.CUDAGraph()
        self._capturing.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._capturing):
            graph.capture_begin(pool=self._pool)
            try:
                for _ in range(count):
                    call()
            finally:
                graph.capture_end()
        return graph
