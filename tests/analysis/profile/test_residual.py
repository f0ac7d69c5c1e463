"""What traced steps do not explain, and how well that is known."""

from __future__ import annotations

import numpy as np
import pytest
from support.timelines import ADDED, FUSED, NOTHING, a_timeline, a_variant, empty_calls, some_steps

from bt_bench.analysis.profile.corrected import CorrectedSteps
from bt_bench.analysis.profile.residual import Residual, residual_of
from bt_bench.analysis.profile.weight import weight_of
from bt_bench.analysis.statistics.student import t_quantile
from bt_bench.results import Tracing

# Of the turns; in one of them the machine was slow.
MORE_US = [0.8, 0.9, 1.0, 1.1, 1.2, 60.0]


def in_turns(of, more_us=None):
    """Samples, each in a turn of its own, that take longer by as much."""
    count = len(of.step_us)
    longer = [0.0] * count if more_us is None else more_us
    return of.model_copy(
        update={
            "turns": list(range(count)),
            "host_us": [us + more for us, more in zip(of.host_us, longer, strict=True)],
            "step_us": [us + more for us, more in zip(of.step_us, longer, strict=True)],
        }
    )


def found(plain_more=None, empty_more=None, samples=6):
    more = {"samples": samples, "scatter_us": 0}
    plain = some_steps(Tracing.NONE, FUSED, NOTHING, **more)
    traced = some_steps(Tracing.ALL, FUSED, ADDED, **more)
    empty = [
        in_turns(one, empty_more if (one.name, one.tracing) == ("launch", Tracing.ALL) else None)
        for one in empty_calls(ADDED, **more)
    ]
    timeline = a_timeline(empty=empty)
    ends_us = CorrectedSteps(traced, weight_of(timeline, Tracing.ALL)).ends_us
    return residual_of(timeline, in_turns(plain, plain_more), in_turns(traced), ends_us)


def test_a_turn_in_which_the_machine_was_slow_is_cut_off():
    residual = found(MORE_US)
    assert residual.us == pytest.approx(1.05)
    # Without a turn at a time: 1.1, 1.1, 1.0667, 1.0333, 1.0 and 1.0, with a sum of squares of
    # 0.010556; t(0.975, 5) is 2.5706.
    assert residual.error_us == pytest.approx(2.5706 * (5 / 6 * 0.010556) ** 0.5, rel=1e-3)


@pytest.mark.parametrize("samples", [4, 5, 10, 23, 40])
def test_the_error_is_that_of_a_jackknife_over_tenths_of_the_turns(samples):
    more_us = [((7 * turn) % samples) ** 1.5 / 100 for turn in range(samples)]
    more_us[samples // 2] = 80.0  # the machine was slow

    def trimmed(values):
        cut = round(0.2 * len(values))
        return np.sort(values)[cut : len(values) - cut].mean()

    groups = min(10, samples)
    without = [
        trimmed([us for turn, us in enumerate(more_us) if turn % groups != group])
        for group in range(groups)
    ]
    error = np.sqrt((groups - 1) * np.var(without))
    residual = found(more_us, samples=samples)
    assert residual.us == pytest.approx(trimmed(more_us))
    assert residual.error_us == pytest.approx(t_quantile(0.975, groups - 1) * error)
    assert residual.error_us < 10


def test_steps_that_are_explained_exactly_have_no_error():
    assert found() == Residual(pytest.approx(0, abs=1e-9), pytest.approx(0, abs=1e-9))


def test_what_tracing_adds_is_part_of_the_error():
    """It is taken off all steps alike, so the steps of no turn show that it is not well known."""
    residual = found(empty_more=[-0.5, -0.3, -0.1, 0.1, 0.3, 0.5])
    assert residual.us == pytest.approx(0, abs=1e-9)
    assert residual.error_us > 0.1


@pytest.mark.parametrize(("samples", "known"), [(2, False), (3, True), (25, True)])
def test_an_error_needs_three_turns(samples, known):
    assert (found(samples=samples).error_us is not None) is known


def test_without_turns_in_common_there_is_no_error():
    plain, traced = a_variant("mine").steps
    timeline = a_timeline()
    later = traced.model_copy(update={"turns": [turn + 100 for turn in traced.turns]})
    ends_us = CorrectedSteps(later, weight_of(timeline, Tracing.ALL)).ends_us
    residual = residual_of(timeline, plain, later, ends_us)
    assert residual.error_us is None
