"""How long a sweep is said to take."""

from __future__ import annotations

import pytest

from bt_bench.config.load import load_config
from bt_bench.results.run.nouns import Quantity
from bt_bench.results.run.series import series_of
from bt_bench.runs.estimate import duration_text, estimate_gate_seconds, estimate_seconds
from bt_bench.runs.gate.wanted import round_plan


def seconds_of(config, device="cpu", arms=4, devices=1, **options):
    return estimate_seconds(load_config(config, **options), arms, device, devices)


def test_the_tiny_cases_take_a_minute_and_the_others_long_without_a_gpu():
    assert seconds_of("quick") < 120
    assert seconds_of("origin") > 600
    assert seconds_of("origin", "cuda") < seconds_of("origin")


def test_more_of_anything_takes_longer():
    small = seconds_of("origin", overrides=["plan.rounds=5", "plan.instances=1"])
    assert small < seconds_of("origin") / 3
    assert seconds_of("origin", select="small") < seconds_of("origin", select="large")
    assert seconds_of("quick", arms=2) < seconds_of("quick", arms=4)
    assert seconds_of("quick", operations=["step"]) < seconds_of("quick")
    assert seconds_of("origin", overrides=["plan.case_seconds=1"]) < seconds_of("origin")


DEVICE_TIMES = [
    *("plan.rounds=12", "plan.min_rounds=1", "plan.warmup_rounds=1", "plan.loads=idle"),
    *("plan.launch_paths=jit,graph", "plan.graph_rounds=96", "plan.profile_rounds=192"),
    "plan.case_seconds=6",
]


@pytest.mark.parametrize(
    ("overrides", "devices", "taken"),
    [([], 1, 464), ([], 2, 283), (DEVICE_TIMES, 1, 310), (DEVICE_TIMES, 2, 164)],
)
def test_a_sweep_on_gpus_is_estimated_within_a_factor_of_two(overrides, devices, taken):
    """Estimate sweeps of `production` that took so many seconds on H200s, with compiled kernels."""
    seconds = seconds_of("production", "cuda", 5, overrides=overrides, devices=devices)
    assert taken / 1.2 <= seconds <= 2 * taken


@pytest.mark.parametrize("cases", [0, 1, 2, 3])
def test_devices_without_a_case_shorten_nothing(cases):
    spec = load_config("production", overrides=DEVICE_TIMES)
    few = spec.model_copy(update={"cases": spec.cases[:cases]})
    seconds = [estimate_seconds(few, 5, "cuda", count) for count in (1, 2, 3, 4)]
    busy = max(1, cases)
    assert seconds[:busy] == sorted(set(seconds[:busy]), reverse=True)
    assert set(seconds[busy - 1 :]) == {seconds[busy - 1]}


def test_devices_share_all_but_the_rounds_of_the_host():
    one, eight = (seconds_of("production", "cuda", 5, devices=count) for count in (1, 8))
    assert eight > len(load_config("production").cases) * 2 * 1.5  # its rounds take turns
    device_times = [
        seconds_of("production", "cuda", 5, overrides=DEVICE_TIMES, devices=count)
        for count in (1, 8)
    ]
    assert device_times[1] < device_times[0] / 6 < one / 4


def gate_seconds(rounds=32, workers=3, cores=2, device="cpu", config="quick", variants=2, **more):
    spec = load_config(config)
    plan = round_plan(spec.plan, [series_of(Quantity.HOST_US)], 0)
    return estimate_gate_seconds(spec, plan, variants, device, rounds, workers, cores, **more)


def test_more_rounds_and_fewer_workers_make_a_gate_longer():
    assert gate_seconds(rounds=64) > 1.5 * gate_seconds(rounds=32)
    assert gate_seconds(workers=2) > gate_seconds(workers=4, cores=4)
    assert gate_seconds(variants=4) > gate_seconds(variants=2)


def test_devices_divide_the_rounds_of_a_gate_unless_these_time_the_host():
    options = {"rounds": 320, "workers": 320, "cores": 320, "device": "cuda", "config": "origin"}
    one = gate_seconds(**options)
    assert gate_seconds(**options, times_host=False) == one
    many = [gate_seconds(**options, devices=8, times_host=host) for host in (True, False)]
    assert 0.6 * one < many[0] < one
    assert many[1] < one / 4


@pytest.mark.parametrize(
    ("variants", "operations", "rounds", "taken"),
    [
        (1, ["step"], 12, 138),
        (2, ["gather_slots", "step"], 12, 150),
        (2, ["gather_slots", "step"], 32, 189),
    ],
)
def test_a_gate_on_a_gpu_is_estimated_within_a_factor_of_two(variants, operations, rounds, taken):
    """Estimate gates of one case that took so many seconds on a host of an H100 with 16 cores."""
    spec = load_config("origin", select="small_batch_1grp", operations=operations)
    plan = round_plan(spec.plan, [series_of(Quantity.HOST_US)], 0)
    seconds = estimate_gate_seconds(spec, plan, variants, "cuda", rounds, 24, 16)
    assert taken / 1.2 <= seconds <= 2 * taken


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3, "10 seconds"), (44, "40 seconds"), (600, "10 minutes"), (9000, "2.5 hours")],
)
def test_durations_have_no_more_digits_than_an_estimate(seconds, text):
    assert duration_text(seconds) == text
