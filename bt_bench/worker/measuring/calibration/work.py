"""The device work of a calibration, and the number of samples it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bt_bench.worker.measuring.calibration.copies import (
    PlainCopier,
    Profile,
    affordable_sizes,
    profile_calls,
)
from bt_bench.worker.measuring.calibration.overhead import LaunchRoute, launch_routes
from bt_bench.worker.measuring.device_kernels import CacheReader, launch_null, launch_spin
from bt_bench.worker.measuring.ports import Call, DevicePort


@dataclass(frozen=True)
class Effort:
    """The numbers of samples to take.

    Args:
        rounds: samples of each figure.
        launches: launches in a row that make one sample of a route.
        spin_us: lengths of the kernels of known length.
        line_rounds: samples of each length and method, of injected delays and of the L2 flush.
        passes: samples of each length under the profiler; 0: nothing is profiled.
        copies: samples of a plain copy of each size, under the profiler too.
    """

    rounds: int
    launches: int
    spin_us: tuple[float, ...]
    line_rounds: int
    passes: int
    copies: int


QUICK = Effort(rounds=100, launches=20, spin_us=(3, 10, 50), line_rounds=20, passes=10, copies=5)
THOROUGH = Effort(
    rounds=500, launches=100, spin_us=(3, 5, 10, 20, 50), line_rounds=200, passes=50, copies=30
)


@dataclass(frozen=True)
class DeviceWork:
    """The device work that calibration runs.

    Args:
        launch_null: enqueues an empty kernel.
        launch_spin: enqueues a kernel that runs for a number of ns.
        read: enqueues a read of `read_bytes`, which the L2 can hold.
        read_bytes: size of that read.
        l2_bytes: size of the L2.
        flushed_bytes: bytes that the port writes to flush the L2.
        routes: ways to launch an empty kernel, warmed up.
        profile: makes calls under a profiler; returns the device activities of each.
        copy: enqueues a plain copy that reads and writes a number of bytes together.
        copied_bytes: the sizes that fit into memory, rising.
    """

    launch_null: Call
    launch_spin: Callable[[int], object]
    read: Call
    read_bytes: int
    l2_bytes: int
    flushed_bytes: int
    routes: Sequence[LaunchRoute]
    profile: Profile
    copy: Callable[[int], object]
    copied_bytes: Sequence[int]


def cuda_work(port: DevicePort) -> DeviceWork:
    """Build the harness's own kernels for the current CUDA device, compiled and warmed up."""
    flush: Any = port.flush_l2  # a `CacheFlush`, which knows sizes
    reader = CacheReader()
    sizes = affordable_sizes(torch.cuda.mem_get_info()[0])
    launch_spin(0)
    reader()
    return DeviceWork(
        launch_null=launch_null,
        launch_spin=launch_spin,
        read=reader,
        read_bytes=reader.read_bytes,
        l2_bytes=flush.l2_bytes,
        flushed_bytes=flush.flushed_bytes,
        routes=launch_routes(),
        profile=partial(profile_calls, port.synchronize),
        copy=PlainCopier(max(sizes, default=0)),
        copied_bytes=sizes,
    )
