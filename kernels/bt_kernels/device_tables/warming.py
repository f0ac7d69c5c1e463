"""Compilation and loading of all kernels that tables can need, before they serve."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bt_kernels.launches import NUM_WARPS

if TYPE_CHECKING:
    from bt_kernels.launches import Grid
    from bt_kernels.layout import TableLayout

# Compiling releases Python's lock only at times, so more threads than this wait for each other.
_MOST_THREADS = 16

_CONTROL_GROUPS = Path("/sys/fs/cgroup")
# A quota and its period, of version 2 and of version 1.
_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))


class NotedLaunches:
    """A stand-in for tables that notes launches instead of making them.

    Args:
        layout: layout of the tables.
        descriptors: their descriptors.
        sharded: whether the layout has context parallelism.

    Attributes:
        noted: arguments of the launches, whose grids are empty.
    """

    def __init__(self, layout: TableLayout, descriptors: torch.Tensor, *, sharded: bool) -> None:
        self.layout = layout
        self.descriptors = descriptors
        self.sharded = sharded
        self.noted: list[tuple[Any, ...]] = []

    def launch(
        self,
        kernel: Any,
        _grid: Grid,
        arguments: tuple[Any, ...],
        constants: tuple[Any, ...],
        inputs: tuple[torch.Tensor | None, ...],
        num_warps: int = NUM_WARPS,
    ) -> None:
        """Note a launch; see `bt_kernels.launches.launch_jit`."""
        self.noted.append((kernel, (0, 1, 1), arguments, constants, inputs, num_warps))


class Inputs:
    """Arguments of every kind that selects a binary, too small to be used.

    Args:
        layout: layout of the tables.
        device: their device.

    Attributes:
        mappings: one of each dtype.
        starts: `query_start_loc`.
        positions: as in a step.
        windows: `num_computed_tokens`, and `None`.
        pointers: `out_ptrs` of each dtype, and `None`.
        slots: a caller's slots, and `None`.
    """

    def __init__(self, layout: TableLayout, device: torch.device) -> None:
        def empty(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.empty(shape or (1,), dtype=dtype, device=device)

        self.mappings = [empty(torch.int32), empty(torch.int64)]
        self.starts = empty(torch.int32)
        self.positions = empty(torch.int64)
        has_window = any(layout.reaches)
        self.windows = [None, empty(torch.int32)] if has_window else [None]
        self.pointers = [None, empty(torch.int64), empty(torch.uint64)]
        self.slots = [None, empty(torch.int64, layout.num_groups, 1)]


def run_all(tasks: Iterable[Callable[[], object]]) -> None:
    """Call all tasks in parallel; raise the first error once all are done."""
    with ThreadPoolExecutor(min(_MOST_THREADS, usable_cores())) as pool:
        for future in [pool.submit(task) for task in tasks]:
            future.result()


def usable_cores(groups: Path = _CONTROL_GROUPS) -> int:
    """Return the number of cores that this process may keep busy, at least 1.

    Not `os.cpu_count`, which counts cores that it may not use. In a container, a CPU quota allows
    fewer than it sees.

    Args:
        groups: where control groups are mounted.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for names in _QUOTAS:
        try:
            quota, period = " ".join((groups / name).read_text() for name in names).split()
        except (OSError, ValueError):
            continue
        if quota.isdecimal() and int(period):  # without a quota: max, or -1
            cores = min(cores or 1, int(quota) // int(period))
    return max(1, cores or 1)
