"""The lottery of GPUs: by how much two GPUs of one model differ in the same work.

Every run on a GPU times the same empty kernels and the same plain copies as its calibration. So two
calibrations are an A/A test of two GPUs: the code is equal, and the device is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bt_bench.analysis.statistics.samples import median
from bt_bench.analysis.ticks import device_ticks, largest_ticks
from bt_bench.results import DEVICE_TICK_US, Calibration, Environment, Method

_FIGURES = ("null_host", "null_step", "null_gpu")
_BY_PROFILER = ("null_gpu",)
_COPY = "copy_"


def lottery_figures(calibration: Calibration) -> dict[str, float]:
    """Return medians in µs of the work that all GPUs do when they are calibrated, by name."""
    found = {name: calibration.samples(name) for name in _FIGURES}
    copies = calibration.copies
    if copies is not None:
        sizes = zip(copies.moved_bytes, copies.samples, strict=True)
        found |= {_copy_name(size): samples for size, samples in sizes}
    return {name: median(samples) for name, samples in found.items() if samples}


def _copy_name(moved_bytes: int) -> str:
    return f"{_COPY}{moved_bytes}_bytes"


def apart(values: Sequence[float], tick_us: float = 0.0) -> float:
    """Return by how much the largest exceeds the smallest, on the log scale; 0 without times.

    Args:
        values: times in µs.
        tick_us: the tick of their clock. A difference of one tick is none: without this, one of 32
            ns in a copy of 0.8 µs had all device times of two H200s differ by 4 %.
    """
    times = [value for value in values if value > 0]
    least = min(times, default=1.0)
    return math.log(max(least, max(times, default=0.0) - tick_us) / least)


def lottery_apart(calibrations: Sequence[Calibration]) -> dict[str, float]:
    """Return by how much devices differ in the same work, as a share of the fastest, by name."""
    logs = _logs_apart(calibrations)
    return {name: math.expm1(log) for name, log in logs.items()}


def _logs_apart(calibrations: Sequence[Calibration]) -> dict[str, float]:
    """Return by how much devices differ in work that at least one has done, on the log scale."""
    figures = [lottery_figures(calibration) for calibration in calibrations]
    ticks = largest_ticks(map(device_ticks, calibrations))
    tick_us = ticks.get(Method.PROFILER, DEVICE_TICK_US)
    names = dict.fromkeys(name for each in figures for name in each)
    return {
        name: apart(
            [each[name] for each in figures if name in each],
            tick_us if name in _BY_PROFILER or name.startswith(_COPY) else 0.0,
        )
        for name in names
    }


def device_lottery(
    base: tuple[Environment, Calibration | None], other: tuple[Environment, Calibration | None]
) -> float:
    """Return by how much device times of two places may differ, since their GPUs do.

    Returns:
        On the log scale, the most that copies of any size differ; 0 for one GPU, and where a UUID
        or a calibration is unknown.
    """
    uuids = [environment.gpus[0].uuid for environment, _ in (base, other) if environment.gpus]
    if len(uuids) < 2 or None in uuids or uuids[0] == uuids[1]:
        return 0.0
    calibrations = [calibration for _, calibration in (base, other) if calibration is not None]
    if len(calibrations) < 2:
        return 0.0
    logs = _logs_apart(calibrations)
    return max((log for name, log in logs.items() if name.startswith(_COPY)), default=0.0)
