"""Host profiles: what the frames leave of a step, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from bt_bench.results import HandlerCost, HostFrame, HostProfile

COST = HandlerCost(within_us=0.2, around_us=0.3)


def frame(self_us, *children):
    return HostFrame(
        name="f",
        kind="python",
        calls=1,
        self_us=self_us,
        self_low_us=self_us,
        self_high_us=self_us,
        total_us=self_us + sum(child.total_us for child in children),
        children=list(children),
    )


def profile(plain_us, *frames):
    return HostProfile(
        plain_us=plain_us, repetitions=1, python_call=COST, c_call=COST, frames=list(frames)
    )


def test_the_rest_is_what_frames_leave_of_the_step():
    frames = frame(3, frame(2, frame(1))), frame(2)
    assert profile(10, *frames).explained_us == 8
    assert profile(10, *frames).unexplained_us == 2
    assert profile(7, *frames).unexplained_us == -1
    assert profile(7).unexplained_us == 7


def test_negative_times_are_refused():
    with pytest.raises(ValidationError):
        frame(-0.1)
    with pytest.raises(ValidationError):
        profile(-1.0)
