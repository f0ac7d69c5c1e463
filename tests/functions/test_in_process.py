"""Callables timed in this process: what is told of them, with scripted and with real times."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from unittest.mock import patch

import pytest
import torch

import bt_bench
from bt_bench.errors import UsageError
from bt_bench.functions.in_process import Outcome, Times, _comparison


class Ticking:
    """A clock that only work moves: the times of calls are exact on any machine."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns

    def work(self, us: float) -> None:
        self.ns += int(us * 1e3)


@pytest.fixture
def clock():
    ticking = Ticking()
    with (
        patch("bt_bench.worker.measuring.ports.SystemClock", lambda: ticking),
        patch.object(torch.cuda, "is_available", bool),
    ):
        yield ticking


def test_nothing_traces_timed_calls(clock):
    """Coverage makes a call of two lines slower by more than most differences."""
    traced = []

    def tracer(frame, *_):
        traced.append(frame.f_code.co_name)
        return tracer

    def profiler(frame, *_):
        traced.append(frame.f_code.co_name)

    def timed():
        seen.append((sys.gettrace(), sys.getprofile()))
        clock.work(10)

    seen = []
    before = sys.gettrace(), sys.getprofile()
    sys.settrace(tracer)
    sys.setprofile(profiler)
    try:
        bt_bench.bench({"a": timed, "b": timed})
        after = sys.gettrace(), sys.getprofile()
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
    assert after == (tracer, profiler)
    assert set(seen[2:]) == {(None, None)}  # the first two calls are compared, and not timed
    assert traced.count("timed") > 0


def test_times_and_verdicts(clock):
    result = bt_bench.bench(
        {
            "torch": lambda: clock.work(10),
            "mine": lambda: clock.work(8),
            "slow": lambda: clock.work(25),
            "same": lambda: clock.work(10.05),
        }
    )
    assert result.median_us("mine") == pytest.approx(8)
    assert result.rounds == 60
    assert len(result.samples[Times.HOST]["mine"]) == 60
    assert list(result.samples) == ["host_us"]
    mine = result.comparison("mine")
    assert mine.speedup == pytest.approx(1.25)
    assert (mine.outcome, mine.against) == (Outcome.FASTER, "torch")
    assert result.comparison("slow").outcome == "slower"
    assert result.comparison("same").outcome == "same"
    with pytest.raises(KeyError, match="no such comparison"):
        result.comparison("mine", Times.DEVICE)


def test_what_is_printed(clock):
    result = bt_bench.bench({"torch": lambda: clock.work(10), "mine": lambda: clock.work(8)})
    lines = str(result).splitlines()
    assert lines[0] == "mine is 1.25 × faster (1.25–1.25) on this CPU"
    assert lines[1] == "Results were not compared: torch returns no tensor."
    assert lines[2] == "torch: 10.00 µs on this CPU"
    assert "There is no GPU" in lines[4]
    assert lines[-1] == result.isolation
    assert result.isolation.startswith("Isolation: none. The functions share this process")
    assert repr(result) == str(result)


def test_what_makes_times_false_is_named(clock):
    tracemalloc.start()
    try:
        result = bt_bench.bench({"torch": lambda: clock.work(10), "mine": lambda: clock.work(8)})
    finally:
        tracemalloc.stop()
    assert "Warning: tracemalloc is on: each allocation is recorded" in str(result)


def test_slower_is_told_the_other_way_round(clock):
    result = bt_bench.bench({"torch": lambda: clock.work(8), "mine": lambda: clock.work(10)})
    assert str(result).startswith("mine is 1.25 × slower (1.25–1.25) on this CPU\n")


def test_time_ends_the_rounds(clock):
    result = bt_bench.bench({"a": lambda: clock.work(1e6), "b": lambda: clock.work(1e6)}, seconds=1)
    assert result.rounds == 10


def test_the_first_function_may_differ_from_itself():
    first, again = [10.0, 10.1] * 20, [11.0, 11.1] * 20
    found = _comparison("mine", "torch", Times.HOST, first, [10.5, 10.6] * 20, again)
    assert found.margin > 0.08
    assert found.outcome is Outcome.SAME


def test_noise_is_not_resolved():
    first, this = [10.0, 30.0, 20.0, 5.0] * 5, [20.0, 10.0, 9.0, 20.0] * 5
    found = _comparison("mine", "torch", Times.HOST, first, this, first)
    assert found.outcome is Outcome.UNCLEAR
    assert found.text("on the host").startswith("not resolved on the host")


def test_results_are_compared(clock):
    x = torch.rand(8)
    found = bt_bench.bench({"a": lambda: x + 1, "b": lambda: x + 1})
    assert found.results == "All returned the same, bit for bit, in the first call."
    found = bt_bench.bench({"a": lambda: x + 1, "b": lambda: x + 2, "c": lambda: x[1:]})
    assert found.results == (
        "Results differ, in the first call: b's differ from a's by up to 1; "
        "c's have other shapes or dtypes than a's."
    )
    assert str(found).splitlines()[2] == found.results  # right below the verdicts
    found = bt_bench.bench({"a": lambda: None, "b": lambda: None})
    assert found.results == "Results were not compared: a returns no tensor."
    with pytest.raises(KeyError, match="no such comparison; expected one of 'b', 'host_us'"):
        found.comparison("c")


@pytest.mark.parametrize(
    ("functions", "rounds", "message"),
    [
        ({"a": len}, 60, "expected two or more functions by name"),
        ([len, len], 60, "expected two or more functions by name"),
        ({"a": len, "b": 3}, 60, "bench has 3 as 'b'; expected a callable"),
        ({"a": len, "b": len}, 5, "rounds is 5; expected 10 or more"),
    ],
)
def test_what_is_refused(functions, rounds, message):
    with pytest.raises(UsageError, match=message):
        bt_bench.bench(functions, rounds=rounds)


def test_what_a_function_raises_is_passed_on():
    with pytest.raises(ZeroDivisionError):
        bt_bench.bench({"a": lambda: 1 / 0, "b": lambda: None})


def test_importing_bt_bench_imports_nothing_else():
    code = "import sys, bt_bench; print(sorted(m for m in sys.modules if m.startswith('bt_bench')))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['bt_bench']"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = bt_bench.nothing


@pytest.mark.gpu
@pytest.mark.alone
def test_on_a_gpu():
    x = torch.rand(1 << 20, device="cuda")
    result = bt_bench.bench(
        {
            "once": lambda: x + 1,
            "four times": lambda: x + 1 + 1 + 1 + 1,
            "sleepy": lambda: (time.sleep(1e-3), x + 1)[1],
        }
    )
    assert result.device is not None
    assert set(result.samples) == set(Times)
    assert result.comparison("four times", Times.DEVICE).outcome == "slower"
    assert result.comparison("sleepy", Times.HOST).outcome == "slower"
    assert result.comparison("sleepy", Times.DEVICE).outcome != "slower"
    assert "on the device" in str(result)


def test_a_light_installation_is_refused(monkeypatch):
    monkeypatch.setattr("bt_bench.base.extras.missing_packages", lambda: ["torch"])
    with pytest.raises(UsageError, match="bench needs torch, which is not installed; pip"):
        bt_bench.bench({"one": int, "two": int})
