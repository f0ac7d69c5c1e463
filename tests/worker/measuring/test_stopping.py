"""When a case has been measured long enough."""

from __future__ import annotations

import numpy as np

from bt_bench.results.run.case import StopReason
from bt_bench.results.run.nouns import Method, Quantity, Series
from bt_bench.results.run.plan import Plan
from bt_bench.worker.measuring.stopping import RelativeWidth

KEY = ("a", Series(quantity=Quantity.HOST_US, method=Method.HOST_CLOCK))
OTHER = ("b", Series(quantity=Quantity.HOST_US, method=Method.HOST_CLOCK))


def feed(values, **plan):
    """Adds values one by one until there is a reason to stop; the reason and the round."""
    criterion = RelativeWidth(Plan(**({"min_rounds": 16} | plan)), check_every=8)
    for index, value in enumerate(values):
        criterion.add({KEY: value})
        reason = criterion.reason()
        if reason is not None:
            return reason, index + 1
    return None, len(values)


def noisy(relative, count, seed=0):
    return 100 * (1 + relative * np.random.default_rng(seed).standard_normal(count))


def test_quiet_samples_stop_at_the_fewest_rounds():
    assert feed(noisy(0.001, 400)) == (StopReason.PRECISE, 16)


def test_noisier_samples_take_more_rounds():
    reason, rounds = feed(noisy(0.04, 400))
    assert reason is StopReason.PRECISE
    # 1.96 * 1.25 * 0.04 / 0.01 squared is 96.
    assert 50 <= rounds <= 200


def test_noise_that_no_affordable_number_of_rounds_would_tame_stops_once_it_is_stable():
    reason, rounds = feed(noisy(0.3, 4000), rounds=500)
    assert reason is StopReason.STABLE
    assert 40 <= rounds < 500


def test_zero_precision_never_stops_early():
    assert feed([1.0] * 300, precision_percent=0) == (None, 300)


def test_the_widest_interval_decides():
    criterion = RelativeWidth(Plan(min_rounds=16), check_every=8)
    for quiet, loud in zip(noisy(0.001, 64), noisy(0.2, 64), strict=True):
        criterion.add({KEY: quiet, OTHER: loud})
    assert criterion.reason() is None
    assert criterion.half_width([KEY]) < 0.001 < 0.02 < criterion.half_width()
