"""The value that a gate takes of many samples."""

from __future__ import annotations

import numpy as np
import pytest

from bt_bench.analysis.statistics.faster import faster_mean


def test_the_slowest_quarter_does_not_count():
    assert faster_mean([4.0, 1.0, 2.0, 3.0]) == 2.0
    assert faster_mean([1.0, 2.0, 3.0, 1e9]) == 2.0
    assert faster_mean([5.0]) == 5.0


def test_what_slows_a_third_of_the_calls_is_seen():
    assert faster_mean([10.0] * 66 + [20.0] * 33) > 10.5


def test_it_resolves_less_than_the_tick_of_a_clock():
    generator = np.random.default_rng(0)
    tick = 0.032

    def taken(us):
        begin = generator.uniform(0, tick, 4000)
        return np.floor((begin + us) / tick) * tick - np.floor(begin / tick) * tick

    assert np.mean(taken(2.310)) - np.mean(taken(2.305)) == pytest.approx(0.005, abs=0.0015)
    # The quarter that is left out hides up to a quarter of a tick, and no more.
    assert faster_mean(taken(2.315)) > faster_mean(taken(2.305)) + 0.001
