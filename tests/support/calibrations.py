"""Calibrations with made-up figures, for tests of whatever judges or prints them."""

from __future__ import annotations

from typing import Any

from bt_bench.results.run.calibration import (
    Calibration,
    DeviceLine,
    Figure,
    Injection,
    L2Flush,
    LaunchChain,
    PlainCopies,
)
from bt_bench.results.run.nouns import Method, Quantity

HOST_FIGURES = {"empty_call": 0.06, "empty_call_first": 0.15, "timer_tick": 0.03}
DEVICE_FIGURES = {
    "event_floor": 2.5,
    "event_floor_busy": 1.2,
    "event_null_busy": 2.1,
    "synchronize": 3.25,
    "null_host": 6.5,
    "null_step": 12.5,
    "null_gpu": 0.6,
    "null_graph_host": 4.5,
    "replay": 4.5,
    "replay_profiled": 4.6,
    "null_graph_step": 9.75,
    "triton_jit": 6.0,
    "cuda_graph": 4.0,
}
SET_US = [3.0, 10.0, 50.0]


def make_figures(medians: dict[str, float]) -> list[Figure]:
    """A figure each, with five samples that scatter by a tenth around the median."""
    return [
        Figure(
            name=name,
            what=f"the {name}",
            samples=[round(share * value, 6) for share in (0.9, 0.95, 1, 1.05, 1.1)],
        )
        for name, value in medians.items()
    ]


def make_line(method: Method, gradient: float, intercept: float) -> DeviceLine:
    """What a method with that gradient and intercept reports."""
    return DeviceLine(
        method=method,
        set_us=SET_US,
        reported_us=[[round(gradient * length + intercept, 6)] * 3 for length in SET_US],
    )


def make_injection(host: float = 20.1, step: float = 19.9, gpu: float = 0.0) -> Injection:
    """20 µs of delay that moves the quantities by that much."""
    without = {Quantity.HOST_US: 6.5, Quantity.STEP_US: 22.5, Quantity.GPU_US: 10.58}
    moved = {Quantity.HOST_US: host, Quantity.STEP_US: step, Quantity.GPU_US: gpu}
    return Injection(
        pause_us=20.0,
        delay_us=20,
        without={quantity: [value] * 3 for quantity, value in without.items()},
        with_delay={q: [round(value + moved[q], 6)] * 3 for q, value in without.items()},
    )


def make_calibration(**changes: Any) -> Calibration:
    """A calibration that keeps every promise; `changes` replace fields."""
    fields: dict[str, Any] = {
        "seconds": 1.75,
        "figures": make_figures(HOST_FIGURES | DEVICE_FIGURES),
        "lines": [
            make_line(Method.PROFILER, 1.0002, 0.58),
            make_line(Method.GRAPH_SLOPE, 1.001, 0.8),
            make_line(Method.EVENTS, 1.0, 1.3),
        ],
        "chains": [LaunchChain(launched=n, counted=n) for n in (2, 4, 8)],
        "injection": make_injection(),
        "flush": L2Flush(
            l2_bytes=60 << 20,
            flushed_bytes=120 << 20,
            read_bytes=8 << 20,
            hot=[2.9, 3.0, 3.1],
            cold=[4.9, 5.0, 5.1],
        ),
        "copies": PlainCopies(
            moved_bytes=[1 << 10, 1 << 20, 1 << 28],
            samples=[[0.79, 0.8, 0.81], [1.1, 1.2, 1.3], [64.0, 64.1, 63.9]],
        ),
    }
    return Calibration(**(fields | changes))


def make_host_calibration(empty_call_us: float = 0.06) -> Calibration:
    """A calibration of a machine without a GPU."""
    figures = make_figures(HOST_FIGURES | {"empty_call": empty_call_us})
    return Calibration(seconds=0.1, figures=figures)
