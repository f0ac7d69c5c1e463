"""How long a sweep is said to take."""

from __future__ import annotations

import pytest

from bt_bench.config.load import load_config
from bt_bench.runs.estimate import duration_text, estimate_seconds


def seconds_of(config, device="cpu", arms=4, **options):
    return estimate_seconds(load_config(config, **options), arms, device)


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3, "10 seconds"), (44, "40 seconds"), (600, "10 minutes"), (9000, "2.5 hours")],
)
def test_durations_have_no_more_digits_than_an_estimate(seconds, text):
    assert duration_text(seconds) == text
