"""The lottery of GPUs: by how much two GPUs of one model differ in the same work.

Every run on a GPU times the same empty kernels and the same plain copies as its calibration. So two
calibrations are an A/A test of two GPUs: the code is equal, and the device is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bt_bench.analysis.statistics.samples import median
from bt_bench.results import Calibration, Environment

_FIGURES = ("null_host", "null_step", "null_gpu")


def lottery_figures(calibration: Calibration) -> dict[str, float]:
    """Return medians in µs of the work that all GPUs do when they are calibrated, by name."""
    found = {name: calibration.samples(name) for name in _FIGURES}
    copies = calibration.copies
    if copies is not None:
        sizes = zip(copies.moved_bytes, copies.samples, strict=True)
        found |= {_copy_name(size): samples for size, samples in sizes}
    return {name: median(samples) for name, samples in found.items() if samples}


def _copy_name(moved_bytes: int) -> str:
    return f"copy_{moved_bytes}_bytes"


def apart(values: Sequence[float]) -> float:
    """Return by how much the largest exceeds the smallest, on the log scale; 0 without times."""
    times = [value for value in values if value > 0]
    return math.log(max(times) / min(times)) if times else 0.0


def lottery_apart(calibrations: Sequence[Calibration]) -> dict[str, float]:
    """Return by how much devices differ in the same work, as a share of the fastest, by name."""
    figures = [lottery_figures(calibration) for calibration in calibrations]
    names = dict.fromkeys(name for each in figures for name in each)
    return {
        name: math.expm1(apart([each[name] for each in figures if name in each])) for name in names
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
    figures: list[Mapping[str, float]] = [
        lottery_figures(calibration) for _, calibration in (base, other) if calibration is not None
    ]
    if len(figures) < 2:
        return 0.0
    shared = [name for name in figures[0] if name.startswith("copy_") and name in figures[1]]
    return max((apart([each[name] for each in figures]) for name in shared), default=0.0)
