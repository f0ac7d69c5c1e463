"""The parts of a step."""

from __future__ import annotations

import numpy as np
import pytest
from support.factories import make_calibration, make_case, make_launches

from bt_bench.analysis.run.budget import (
    CLOSES_WITHIN_PERCENT,
    Budget,
    _launch_latency,
    budget,
    budgets,
)
from bt_bench.results.run.calibration import Calibration
from bt_bench.results.run.case import CaseResult
from bt_bench.results.run.nouns import LaunchPath, Method, Quantity, Series
from bt_bench.results.run.series import series_of

SLOPE = series_of(Quantity.GPU_US, launch_path=LaunchPath.GRAPH, method=Method.GRAPH_SLOPE)
EAGER: dict[Series | Quantity, list[list[float]]] = {
    Quantity.STEP_US: [[50.0]],
    Quantity.HOST_US: [[36.0]],
    Quantity.GPU_US: [[7.0]],
    Quantity.GAP_US: [[2.0]],
    Quantity.LAST_US: [[4.0]],
}
TWO = make_launches(["gather", "slots"])


def _path(quantity: Quantity, launch_path: LaunchPath) -> Series:
    return series_of(quantity, launch_path=launch_path)


def _calibration() -> Calibration:
    """A null kernel: latency and synchronize are 12 - 3 - 0.5 µs, in a graph 10 - 4 - 1 µs."""
    return make_calibration(
        {
            "null_step": [12.0],
            "null_host": [3.0],
            "null_graph_step": [10.0],
            "null_graph_host": [4.0],
            "synchronize": [2.5],
        },
        {Method.PROFILER: 0.5, Method.GRAPH_SLOPE: 1.0},
    )


def _found(case: CaseResult, launch_path: LaunchPath = LaunchPath.JIT) -> Budget:
    found = budget(case, launch_path, _calibration())
    assert found is not None
    return found


def test_launches_by_python() -> None:
    found = _found(make_case(samples=EAGER, launches=TWO))
    assert found == Budget(
        LaunchPath.JIT,
        step_us=50.0,
        host_us=36.0,
        device_left_us=4.0,
        latency_us=pytest.approx(8.5),  # type: ignore[arg-type]
        hidden_us=3.0,
        gaps_us=2.0,
    )
    assert found.residual_us == pytest.approx(1.5)
    assert found.residual_percent == pytest.approx(3.0)
    assert found.closes


@pytest.mark.parametrize("path", [LaunchPath.COMPILED, LaunchPath.DIRECT])
def test_other_launches_from_python_leave_the_same_device_work(path: LaunchPath) -> None:
    taken = {_path(Quantity.STEP_US, path): [[40.0]], _path(Quantity.HOST_US, path): [[26.0]]}
    case = make_case(samples=EAGER | taken, launches=TWO)
    found = _found(case, path)
    assert (found.step_us, found.host_us, found.device_left_us) == (40.0, 26.0, 4.0)
    assert [each.launch_path for each in budgets(case, _calibration())] == [
        LaunchPath.JIT,
        path,
    ]


def test_a_graph_leaves_all_of_its_work() -> None:
    samples = {
        _path(Quantity.STEP_US, LaunchPath.GRAPH): [[20.0]],
        _path(Quantity.HOST_US, LaunchPath.GRAPH): [[6.0]],
        SLOPE: [[8.0]],
    }
    found = _found(make_case(samples=samples), LaunchPath.GRAPH)
    assert found.device_left_us == 8.0
    assert found.latency_us == pytest.approx(5.0)
    assert found.residual_us == pytest.approx(1.0)
    assert (found.hidden_us, found.gaps_us) == (None, None)


def test_without_launches_there_is_the_synchronize_alone() -> None:
    samples = {Quantity.STEP_US: [[5.0]], Quantity.HOST_US: [[2.0]]}
    found = _found(make_case(samples=samples, launches=make_launches([])))
    assert (found.device_left_us, found.latency_us) == (0.0, 2.5)
    assert found.residual_us == pytest.approx(0.5)


def test_means_over_the_steps_of_a_window_add_up() -> None:
    samples = {
        Quantity.STEP_US: [[10.0, 50.0], [12.0, 50.0], [11.0, 50.0]],
        Quantity.HOST_US: [[8.0, 36.0]],
        Quantity.LAST_US: [[0.0, 4.0]],
    }
    case = make_case(samples=samples, num_steps=2, launches=make_launches([], ["gather"]))
    found = _found(case)
    assert (found.step_us, found.host_us, found.device_left_us) == (30.5, 22.0, 2.0)
    assert found.latency_us == pytest.approx((2.5 + 8.5) / 2)
    assert found.residual_us == pytest.approx(1.0)


def test_a_budget_that_does_not_close() -> None:
    parts = {"host_us": 1.0, "device_left_us": 1.0, "latency_us": 1.0}
    rest = {"hidden_us": None, "gaps_us": None}
    step_us = 3.0 / (1 - CLOSES_WITHIN_PERCENT / 100)
    assert Budget(LaunchPath.JIT, step_us=step_us - 0.01, **parts, **rest).closes
    assert not Budget(LaunchPath.JIT, step_us=step_us + 0.01, **parts, **rest).closes
    assert not Budget(LaunchPath.JIT, step_us=2.0, **parts, **rest).closes
    assert Budget(LaunchPath.JIT, step_us=0.0, **parts, **rest).residual_percent is None


@pytest.mark.parametrize("absent", [Quantity.STEP_US, Quantity.HOST_US, Quantity.LAST_US])
def test_no_budget_where_a_part_was_not_measured(absent: Quantity) -> None:
    samples = {series: rows for series, rows in EAGER.items() if series is not absent}
    case = make_case(samples=samples, launches=TWO)
    assert budget(case, LaunchPath.JIT, _calibration()) is None


@pytest.mark.parametrize("absent", ["null_step", "null_host"])
def test_no_budget_without_the_figures_of_a_null_kernel(absent: str) -> None:
    calibration = _calibration()
    figures = [figure for figure in calibration.figures if figure.name != absent]
    case = make_case(samples=EAGER, launches=TWO)
    assert budget(case, LaunchPath.JIT, calibration.model_copy(update={"figures": figures})) is None
    assert budget(case, LaunchPath.JIT, calibration.model_copy(update={"lines": []})) is None
    assert budget(case, LaunchPath.JIT, None) is None


def test_a_kernel_of_known_length_says_what_longer_work_waits_for() -> None:
    """Work that is over when the host returns waits as an empty kernel does, longer work longer."""
    figures = {"null_host": [10.0], "null_step": [16.5], "spin_host": [10.0], "spin_step": [24.0]}
    calibration = make_calibration(figures, {Method.PROFILER: 0.5})
    left = np.array([1.0, 3.0, 10.5])  # the method reports 10.5 µs for the spinning kernel
    latency = _launch_latency(LaunchPath.JIT, left, calibration)
    assert latency is not None
    assert list(latency + left) == pytest.approx([6.5, 6.5, 14.0])
