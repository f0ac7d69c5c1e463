"""The smallest resolvable difference: its parts, and that it keeps its promise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.factories import make_calibration, make_case, make_measurement, make_rounds

from bt_bench.analysis.run.resolution import Limit, Resolution, pair_rounds, resolve
from bt_bench.analysis.statistics.samples import typical
from bt_bench.results.calibration import Calibration
from bt_bench.results.case import CaseResult, ControlSpread
from bt_bench.results.nouns import Load, Quantity, Series
from bt_bench.results.series import series_of

STEP = series_of(Quantity.STEP_US)
EVENT = series_of(Quantity.EVENT_US)
# Half-width of an interval of three medians that are 1 apart, at 99 %.
THREE_MEDIANS = 9.9248 * 1 / math.sqrt(3)


def _case(
    samples: Mapping[Series, list[list[float]]],
    instances: int = 3,
    spreads: Mapping[Series, float] | None = None,
) -> CaseResult:
    count = max(map(len, samples.values()))
    return make_case(
        samples=samples,
        rounds=make_rounds(count, instances),
        control_spreads=[
            ControlSpread(series=series, arm="copy", difference_us=difference)
            for series, difference in (spreads or {}).items()
        ],
    )


def _pair(
    differences: list[float], series: Series = STEP, spreads: tuple[float, float] | None = None
) -> tuple[CaseResult, CaseResult]:
    base = _case(
        {series: [[50.0 + value] for value in differences]},
        spreads={series: spreads[0]} if spreads else None,
    )
    other = _case(
        {series: [[50.0]] * len(differences)}, spreads={series: spreads[1]} if spreads else None
    )
    return base, other


def _resolved(
    pair: tuple[CaseResult, CaseResult],
    series: Series = STEP,
    calibration: Calibration | None = None,
) -> Resolution:
    resolution = resolve(*pair, series, calibration)
    assert resolution is not None
    return resolution


def test_rounds_pair_by_their_index_in_the_log() -> None:
    base = make_measurement(STEP, [[10.0, 20.0], [11.0, 21.0], [12.0, 22.0]], [0, 2, 5])
    other = make_measurement(STEP, [[1.0, 1.0], [2.0, 2.0]], [5, 2])
    paired = pair_rounds(base, other)
    assert paired is not None
    assert paired.rounds == [2, 5]
    assert paired.differences_us == [[9.0, 19.0], [11.0, 21.0]]


def test_rounds_that_are_short_do_not_pair() -> None:
    base = make_measurement(STEP, [[10.0, 20.0], [11.0]])
    other = make_measurement(STEP, [[1.0], [2.0, 3.0]])
    assert pair_rounds(base, other) is None


def test_an_instance_is_one_observation() -> None:
    # Two rounds an instance, whose medians are 1, 2 and 3.
    resolution = _resolved(_pair([0.5, 1.5, 2.0, 2.0, 2.5, 3.5]))
    assert resolution.instances_us == pytest.approx(THREE_MEDIANS, rel=1e-4)
    assert (resolution.instances, resolution.rounds) == (3, 6)
    assert resolution.limit is Limit.INTERVAL


def test_drift_that_instances_share_is_seen_over_time() -> None:
    steady = [0.0] * 24
    drifting = [index / 10 for index in range(24)]
    assert _resolved(_pair(steady)).interval_us == 0.0
    resolution = _resolved(_pair(drifting))
    assert resolution.blocks_us > 0
    assert resolution.interval_us >= max(resolution.instances_us, resolution.blocks_us)


@pytest.mark.parametrize(
    ("white_us", "interval_us"),
    [(0.0, 5.0), (3.0, 4.0), (3.5, 4.0), (2.0, math.sqrt(21)), (9.0, 4.0)],
)
def test_what_both_intervals_have_in_common_counts_once(
    white_us: float, interval_us: float
) -> None:
    """Of independent rounds each interval holds the whole scatter; neither is undercut."""
    resolution = replace(
        _resolved(_pair([0.0] * 24)), instances_us=3.0, blocks_us=4.0, white_us=white_us
    )
    assert resolution.interval_us == pytest.approx(interval_us)


def test_the_larger_control_spread_of_both_cases_counts() -> None:
    resolution = _resolved(_pair([1.0] * 6, spreads=(0.25, -0.75)))
    assert resolution.control_us == 0.75
    assert resolution.limit is Limit.CONTROL
    assert resolution.smallest_us == 0.75
    assert resolution.resolves(-0.8)
    assert not resolution.resolves(0.75)


def test_control_spreads_of_another_series_do_not_count() -> None:
    base, other = _pair([1.0] * 6)
    spread = ControlSpread(series=EVENT, arm="copy", difference_us=3.0)
    base = base.model_copy(update={"control_spreads": [spread]})
    assert _resolved((base, other)).control_us is None


def test_the_host_clock_has_the_tick_and_the_floor_of_the_calibration() -> None:
    calibration = make_calibration(
        {"timer_tick": [0.03, 0.04, 0.05], "empty_call": [1.0, 2.0, 3.0, 4.0, 5.0]}
    )
    resolution = _resolved(_pair([1.0] * 6), calibration=calibration)
    assert (resolution.ticks_us, resolution.floor_us) == (0.08, 2.0)
    assert resolution.limit is Limit.FLOOR
    assert _resolved(_pair([1.0] * 6)).ticks_us is None


def test_events_tick_as_their_samples_and_those_of_their_floor_show() -> None:
    pair = _pair([1.0, 1.0, 1.5, 1.0, 1.0, 1.0], EVENT)
    assert _resolved(pair, EVENT).ticks_us == pytest.approx(2 * 0.5)
    calibration = make_calibration({"event_floor": [5.408, 5.44, 5.44, 5.44, 5.472]})
    resolution = _resolved(pair, EVENT, calibration)
    assert resolution.ticks_us == pytest.approx(2 * 0.032)
    assert resolution.floor_us == 0.0


def test_events_on_a_busy_device_have_a_floor_of_their_own() -> None:
    busy = series_of(Quantity.EVENT_US, load=Load.BUSY)
    calibration = make_calibration({"event_floor": [5.0, 9.0], "event_floor_busy": [1.0, 1.5]})
    assert _resolved(_pair([1.0] * 6, busy), busy, calibration).floor_us == 0.25


def test_the_profiler_has_no_floor() -> None:
    series = series_of(Quantity.GPU_US)
    assert _resolved(_pair([1.0] * 6, series), series, make_calibration()).floor_us is None


def test_it_cannot_be_told_below_three_instances_or_without_a_log() -> None:
    base, other = _pair([1.0] * 4)
    assert resolve(base, other, STEP, None) is None
    base, other = _pair([1.0] * 6)
    assert resolve(base.model_copy(update={"rounds": None}), other, STEP, None) is None
    assert resolve(base, other, EVENT, None) is None
    elsewhere = other.model_copy(update={"rounds": make_rounds(6, instances=2)})
    assert resolve(base, elsewhere, STEP, None) is None


# The promise


def _arms(
    rng: np.random.Generator, rounds_each: int, shifts_us: tuple[float, ...]
) -> list[CaseResult]:
    """Arms that one machine runs side by side, each 50 µs and its shift.

    Noise as seen on a GPU: a shared drift, luck of each instance's buffers, noise in which a round
    resembles the one before, and a tenth of the rounds late by some µs.
    """
    count = 8 * rounds_each
    instance = np.arange(count) // 2 % 8
    drift = np.cumsum(rng.normal(0, 0.1, count))
    cases = []
    for shift_us in shifts_us:
        noise = rng.normal(0, 0.3, count)
        for index in range(1, count):
            noise[index] += 0.6 * noise[index - 1]
        late = rng.exponential(3.0, count) * (rng.random(count) < 0.1)
        luck = rng.normal(0, 0.3, 8)[instance]
        times = 50 + shift_us + drift + noise + late + luck
        samples = {STEP: [[max(0.0, value)] for value in times.tolist()]}
        cases.append(make_case(samples=samples, rounds=make_rounds(count)))
    return cases


def _savings_us(base: CaseResult, other: CaseResult) -> float:
    left, right = base.measurement(STEP), other.measurement(STEP)
    assert left is not None
    assert right is not None
    paired = pair_rounds(left, right)
    assert paired is not None
    savings = typical(paired.differences_us)
    assert savings is not None
    return savings


@pytest.mark.parametrize("rounds_each", [10, 30])
def test_equal_arms_come_out_different_in_one_of_a_hundred_at_most(rounds_each: int) -> None:
    rng = np.random.default_rng(3)
    num_runs = 1000
    resolved = 0
    for _ in range(num_runs):
        base, other, copy = _arms(rng, rounds_each, (0.0, 0.0, 0.0))
        spread = ControlSpread(series=STEP, arm="copy", difference_us=_savings_us(copy, base))
        base = base.model_copy(update={"control_spreads": [spread]})
        resolution = _resolved((base, other))
        resolved += resolution.resolves(_savings_us(base, other))
    assert resolved / num_runs <= 0.01


@pytest.mark.parametrize("rounds_each", [10, 30])
def test_a_difference_of_five_percent_is_resolved(rounds_each: int) -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        base, other = _arms(rng, rounds_each, (2.5, 0.0))
        savings_us = _savings_us(base, other)
        assert savings_us == pytest.approx(2.5, abs=0.8)
        assert _resolved((base, other)).resolves(savings_us)


def test_differences_that_no_number_can_hold_resolve_nothing() -> None:
    wide = Resolution(1e200, 1e200, 1.0, None, None, None, instances=8, rounds=48)
    assert wide.smallest_us == math.inf
    assert not wide.resolves(1e300)
