"""The tick of a device's clocks, from made-up times and from recorded ones."""

from __future__ import annotations

import random

import pytest
from support.committed import ORIGIN
from support.factories import make_calibration

from bt_bench.analysis.ticks import FINEST_US, device_ticks, largest_ticks, tick_of
from bt_bench.results import DEVICE_TICK_US, Method, metric_named, read_result, with_ticks


def stamped(tick_us: float, count: int, noise_us: float = 0.0, seed: int = 0) -> list[float]:
    """Times from 2 to 9 µs by a clock with this tick, stored to a nanosecond."""
    rng = random.Random(seed)
    return [
        round(round(rng.uniform(2, 9) / tick_us) * tick_us + rng.choice((-1, 0, 1)) * noise_us, 3)
        for _ in range(count)
    ]


@pytest.mark.parametrize("tick_us", [1.024, 0.5, 0.032, 0.04167])
@pytest.mark.parametrize("noise_us", [0.0, 0.001])
def test_a_tick_is_read_off_the_times_that_it_made(tick_us: float, noise_us: float) -> None:
    times = stamped(tick_us, 300, noise_us)
    assert tick_of(times) == pytest.approx(tick_us, rel=0.02)


def test_a_clock_that_is_finer_than_what_is_stored_has_the_finest_tick() -> None:
    assert tick_of(stamped(0.001, 300)) == FINEST_US
    assert tick_of(stamped(0.0001, 3000)) == FINEST_US


def test_few_times_and_equal_times_show_no_tick() -> None:
    assert tick_of([]) is None
    assert tick_of([3.2] * 100) is None
    assert tick_of(stamped(0.032, 10)) is None
    assert device_ticks(None) == {}
    assert device_ticks(make_calibration()) == {}


@pytest.mark.parametrize(
    "path", ["h100/origin/fused.json.xz", "h200/page_indices/sweep/fused.json.xz"]
)
def test_h100s_and_h200s_have_the_tick_that_is_assumed_of_others(path: str) -> None:
    ticks = device_ticks(read_result(ORIGIN.parents[1] / path).calibration)
    assert ticks[Method.EVENTS] == DEVICE_TICK_US
    assert ticks[Method.PROFILER] == pytest.approx(DEVICE_TICK_US, rel=0.05)


def test_a_coarse_clock_is_known_by_its_calibration() -> None:
    figures = {"event_floor_busy": stamped(1.024, 100), "null_host": stamped(0.5, 100)}
    assert device_ticks(make_calibration(figures)) == {Method.EVENTS: 1.024}


def test_a_metric_gets_the_ticks_of_its_terms() -> None:
    ticks = {Method.EVENTS: 1.024}
    assert with_ticks(metric_named("event_us"), ticks).tick == 1.024
    assert with_ticks(metric_named("gpu_us"), ticks).tick == DEVICE_TICK_US
    assert with_ticks(metric_named("host_us"), ticks).tick == 0
    assert with_ticks(metric_named("event_us+gpu_us+host_us"), ticks).tick == pytest.approx(1.056)
    assert largest_ticks([ticks, {Method.EVENTS: 0.032, Method.PROFILER: 0.5}]) == {
        Method.EVENTS: 1.024,
        Method.PROFILER: 0.5,
    }
