"""The bound on the device time of a step: the bytes that it must move, or launching at all.

bound = launch + bytes

The launch is the device time of an empty kernel. The bytes are the time that a plain copy of as
many bytes takes beyond it. So the bound is the time of the plain copy, and the larger part of it
binds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bt_bench.analysis.figures import figure_us, step_medians_of
from bt_bench.analysis.plain_copy import PlainCopy
from bt_bench.results import Calibration, CaseResult, Quantity, series_of


class Binds(StrEnum):
    """The larger part of a bound."""

    BYTES = "bytes"
    LAUNCH = "launch"


@dataclass(frozen=True)
class Roofline:
    """The required bytes of a step, its device time, and its bound; means over a window's steps.

    Args:
        read_bytes: bytes that the operation must read in device memory.
        written_bytes: bytes that it must write.
        gpu_us: its device time, by the profiler on an idle device; `None` where it is not known.
        launch_us: device time of an empty kernel, 0 in a step that must move nothing; `None` where
            it was not calibrated.
        bytes_us: the time of a plain copy of as many bytes beyond an empty kernel; likewise.
        step_us: host time until the device is idle again; `None` where it is not known.
        null_step_us: the same for one empty kernel; `None` where it was not calibrated.
    """

    read_bytes: float
    written_bytes: float
    gpu_us: float | None
    launch_us: float | None
    bytes_us: float | None
    step_us: float | None
    null_step_us: float | None

    @property
    def required_bytes(self) -> float:
        """Return the bytes that it must read and write together."""
        return self.read_bytes + self.written_bytes

    @property
    def gb_per_s(self) -> float | None:
        """Return the required bytes over the device time, in units of 10⁹ bytes per second."""
        return self.required_bytes / self.gpu_us / 1e3 if self.gpu_us else None

    @property
    def bound_us(self) -> float | None:
        """Return the least device time, judging by a plain copy."""
        if self.launch_us is None or self.bytes_us is None:
            return None
        return self.launch_us + self.bytes_us

    @property
    def binds(self) -> Binds | None:
        """Return the larger part of the bound; `None` if it is unknown, or nothing must move."""
        if not self.bound_us or self.bytes_us is None or self.launch_us is None:
            return None
        return Binds.BYTES if self.bytes_us > self.launch_us else Binds.LAUNCH

    @property
    def times_bound(self) -> float | None:
        """Return the device time as a multiple of its bound."""
        return self.gpu_us / self.bound_us if self.gpu_us is not None and self.bound_us else None


def roofline(case: CaseResult, calibration: Calibration | None) -> Roofline | None:
    """Return the bound of a case; `None` where its required bytes are unknown.

    Args:
        case: of any variant.
        calibration: of the run.
    """
    required = case.required_bytes
    if required is None:
        return None
    launch_us, bytes_us = _bound(required.totals(), calibration)
    return Roofline(
        read_bytes=float(np.mean(required.read)),
        written_bytes=float(np.mean(required.written)),
        gpu_us=_mean_us(case, Quantity.GPU_US),
        launch_us=launch_us,
        bytes_us=bytes_us,
        step_us=_mean_us(case, Quantity.STEP_US),
        null_step_us=figure_us(calibration, "null_step"),
    )


def _bound(
    moved_bytes: list[int], calibration: Calibration | None
) -> tuple[float | None, float | None]:
    """Return means over the steps: the time of launching, and the time that the bytes add."""
    null_us = figure_us(calibration, "null_gpu")
    if null_us is None:
        return None, None
    launches = [null_us if moved else 0.0 for moved in moved_bytes]
    copy = PlainCopy.measured(calibration.copies if calibration else None)
    if copy is None:
        return float(np.mean(launches)), None
    beyond = [max(0.0, copy.us(moved) - null_us) if moved else 0.0 for moved in moved_bytes]
    return float(np.mean(launches)), float(np.mean(beyond))


def _mean_us(case: CaseResult, quantity: Quantity) -> float | None:
    """Return the mean over all steps of the window, since means add up and medians do not."""
    medians = step_medians_of(case, series_of(quantity))
    if medians is None or len(medians) != case.workload.num_steps:
        return None
    return float(medians.mean())
