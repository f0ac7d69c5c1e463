"""The budget of a step on an idle device, from measurements that are made separately.

step = host + device work left when the call returns + launch latency and synchronize + residual

The host enqueues the last operation and returns. The device begins it one launch latency later and
runs it; then the synchronize returns. Work that the device did before the last launch was hidden
behind the host. Latency and synchronize come from the calibration: from an empty kernel, which ends
before the host has returned, and from one that spins for a known time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bt_bench.analysis.figures import figure_us, method_line, step_medians_of
from bt_bench.results import (
    Calibration,
    CaseResult,
    FloatArray,
    LaunchPath,
    Method,
    Quantity,
    series_of,
)

CLOSES_WITHIN_PERCENT = 10.0


SPIN_US = 10.0


@dataclass(frozen=True)
class Budget:
    """The parts of a step, in µs; for a window of several steps, means over its steps.

    Args:
        launch_path: how the kernels were launched.
        step_us: the time that the parts explain.
        host_us: time until the call returned.
        device_left_us: device work left at that moment: the last operation, or a whole graph.
        latency_us: launch latency and synchronize.
        hidden_us: device work hidden behind the host; `None` if the device never waits for it.
        gaps_us: idle time of the device between operations, likewise.
    """

    launch_path: LaunchPath
    step_us: float
    host_us: float
    device_left_us: float
    latency_us: float
    hidden_us: float | None
    gaps_us: float | None

    @property
    def residual_us(self) -> float:
        """Return the part of the step left unexplained; negative if the parts exceed it."""
        return self.step_us - self.host_us - self.device_left_us - self.latency_us

    @property
    def residual_percent(self) -> float | None:
        """Return the residual in percent of the step."""
        return 100 * self.residual_us / self.step_us if self.step_us else None

    @property
    def closes(self) -> bool:
        """Return whether the residual is within `CLOSES_WITHIN_PERCENT` of the step."""
        return abs(self.residual_us) <= CLOSES_WITHIN_PERCENT / 100 * self.step_us


def budget(
    case: CaseResult, launch_path: LaunchPath, calibration: Calibration | None
) -> Budget | None:
    """Return the budget for one launch path, or `None` where a part was not measured.

    It uses means over the steps of a window, since they add up and medians do not.
    """
    step = step_medians_of(case, series_of(Quantity.STEP_US, launch_path=launch_path))
    host = step_medians_of(case, series_of(Quantity.HOST_US, launch_path=launch_path))
    left = _device_left(case, launch_path)
    if step is None or host is None or left is None:
        return None
    latency = _latency(case, launch_path, left, calibration)
    if latency is None:
        return None
    by_host = launch_path is not LaunchPath.GRAPH
    gpu = _first(case, Quantity.GPU_US, launch_path) if by_host else None
    gaps = _first(case, Quantity.GAP_US, launch_path) if by_host else None
    return Budget(
        launch_path=launch_path,
        step_us=float(step.mean()),
        host_us=float(host.mean()),
        device_left_us=float(left.mean()),
        latency_us=float(latency.mean()),
        hidden_us=None if gpu is None else float(gpu.mean() - left.mean()),
        gaps_us=None if gaps is None else float(gaps.mean()),
    )


def budgets(case: CaseResult, calibration: Calibration | None) -> tuple[Budget, ...]:
    """Return the budgets of all launch paths that a case has."""
    found = (budget(case, launch_path, calibration) for launch_path in LaunchPath)
    return tuple(each for each in found if each is not None)


def _device_left(case: CaseResult, launch_path: LaunchPath) -> FloatArray | None:
    """Return per step the device work that is left when the host returns."""
    if case.launches is not None and not any(case.launches.totals()):
        return np.zeros(1)
    if launch_path is not LaunchPath.GRAPH:
        return _first(case, Quantity.LAST_US, launch_path)
    # The host has enqueued the whole graph before its first kernel runs.
    span = step_medians_of(case, series_of(Quantity.SPAN_US, launch_path=launch_path))
    slope = series_of(Quantity.GPU_US, launch_path=launch_path, method=Method.GRAPH_SLOPE)
    return step_medians_of(case, slope) if span is None else span


def _first(case: CaseResult, quantity: Quantity, launch_path: LaunchPath) -> FloatArray | None:
    """Return the quantity by this launch path, else by Triton's call, with the same kernels."""
    of_path = step_medians_of(case, series_of(quantity, launch_path=launch_path))
    return step_medians_of(case, series_of(quantity)) if of_path is None else of_path


def _latency(
    case: CaseResult, launch_path: LaunchPath, left: FloatArray, calibration: Calibration | None
) -> FloatArray | None:
    """Return per step launch latency plus synchronize; only the latter if nothing is launched."""
    launching = _launch_latency(launch_path, left, calibration)
    if case.launches is None or launch_path is LaunchPath.GRAPH:
        return launching
    totals = np.array(case.launches.totals())
    idle = figure_us(calibration, "synchronize")
    if totals.all():
        return launching
    if idle is None or (totals.any() and launching is None):
        return None
    latency = np.full(len(totals), idle)
    return latency if launching is None else np.where(totals > 0, launching, latency)


def _launch_latency(
    launch_path: LaunchPath, left: FloatArray, calibration: Calibration | None
) -> FloatArray | None:
    """Return the wait after the call has returned, less the device work that is left.

    The host returns some time after it has started the device. If the work is over by then, it
    costs no more waiting than an empty kernel; longer work costs as much as a kernel of known
    length.
    """
    by_graph = launch_path is LaunchPath.GRAPH
    null_step, null_host, spin_step, spin_host = (
        figure_us(calibration, f"{kind}{'_graph' if by_graph else ''}_{end}")
        for kind in ("null", "spin")
        for end in ("step", "host")
    )
    # The method that measures the device's part of the budget measured the spinning kernel.
    method = Method.GRAPH_SLOPE if by_graph else Method.PROFILER
    line = method_line(calibration, method)
    if null_step is None or null_host is None or line is None:
        return None
    if spin_step is None or spin_host is None:
        return np.full(left.shape, null_step - null_host - line.intercept)
    lag = spin_step - spin_host - (line.gradient * SPIN_US + line.intercept)
    return np.maximum(null_step - null_host, lag + left) - left
