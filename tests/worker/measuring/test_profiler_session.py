"""Device activities of single calls, from made-up records of the profiler."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from support.kineto import Event
from support.scripted import ScriptedArm, ScriptedClock, ScriptedDevice

from bt_bench.results.run.nouns import Cache, Load
from bt_bench.results.run.plan import Plan
from bt_bench.suites.block_tables import operations as ops
from bt_bench.worker.measuring import profiler_session as module
from bt_bench.worker.measuring.calibration.copies import profile_calls
from bt_bench.worker.measuring.device_kernels import SPIN_KERNEL_NAME
from bt_bench.worker.measuring.methods.device_times import settings_of
from bt_bench.worker.measuring.methods.profiler import _session
from bt_bench.worker.measuring.profiler_session import (
    STEP_RANGE,
    DeviceActivity,
    ProfilerSession,
    Recorded,
    sort_events,
)
from bt_bench.worker.measuring.rounds import ReplayWindow, Turn


def call(index, start, end):
    """A range on the host, and the shadow that it has on the device's time line."""
    name = f"{STEP_RANGE}{index}"
    return [Event(name, start, end - start, on_device=False), Event(name, start + 1, 3)]


def test_operations_are_sorted_into_their_calls():
    events = [
        Event("late", 230, 1_500),
        *call(1, 200, 300),
        Event("first", 110, 600),
        Event("second", 120, 700),
        *call(0, 100, 190),
        Event("cudaLaunchKernel", 105, 5, on_device=False),
    ]
    assert sort_events(events).by_range(2) == [
        [DeviceActivity("kernel", "first", 110, 600), DeviceActivity("kernel", "second", 120, 700)],
        [DeviceActivity("kernel", "late", 230, 1_500)],
    ]


def test_operations_outside_of_calls_are_left_out():
    events = [Event("before", 50, 9), *call(0, 100, 200), Event("after", 250, 9)]
    assert sort_events(events).by_range(1) == [[]]


def test_a_range_that_was_not_recorded_has_no_operations():
    events = [*call(1, 200, 300), Event("kernel", 110, 9), Event("kernel", 210, 9)]
    assert sort_events(events).by_range(2) == [[], [DeviceActivity("kernel", "kernel", 210, 9)]]


class Profiled:
    """A scripted device, and a profiler that records its work and the ranges on its host."""

    def __init__(self, monkeypatch):
        self.clock = ScriptedClock()
        self.device = ScriptedDevice(self.clock)
        self.events = []
        enqueue, occupy = self.device.enqueue, self.device.occupy
        self.name = "kernel"

        def recorded(duration_ns):
            enqueue(duration_ns)
            start = self.device.idle_from_ns - duration_ns
            self.events.append(Event(self.name, start, duration_ns))

        def occupied(duration_us):
            self.name = SPIN_KERNEL_NAME
            occupy(duration_us)
            self.name = "kernel"

        self.device.enqueue, self.device.occupy = recorded, occupied
        monkeypatch.setattr(module, "record_function", self.range)
        monkeypatch.setattr(module, "profile", self.profile)

    @contextmanager
    def range(self, name):
        self.clock.ns += 100
        start = self.clock.ns
        yield
        self.events.append(Event(name, start, self.clock.ns - start, on_device=False))
        self.clock.ns += 100

    @contextmanager
    def profile(self, **_):
        self.events.clear()
        results = SimpleNamespace(events=lambda: self.events)
        yield SimpleNamespace(kineto_results=results)

    def measured(self):
        """Durations of each step's activities, by condition."""
        arm = ScriptedArm("arm", self.device, [], host_ns=4_000)
        window = ReplayWindow("case", [[arm]], [1, 2], ops.STEP)
        settings = settings_of(Plan(l2=[Cache.COLD, Cache.HOT]))
        todo = [(window, setting, Turn(0, [arm])) for setting in settings]
        found = _session(todo, self.device, 10_000.0)
        assert not any(late for _, late in found)
        return {
            (setting.load, setting.l2): [[one.duration_ns for one in step] for step in steps["arm"]]
            for setting, (steps, _) in zip(settings, found, strict=True)
        }

    def calibrated(self):
        """Durations of the activities of two calls, the second a spinning kernel."""
        calls = [lambda: self.device.enqueue(700), lambda: self.device.occupy(3.0)]
        found = profile_calls(self.device.synchronize, calls)
        return [[one.duration_ns for one in of_call] for of_call in found]


@pytest.fixture
def profiled(monkeypatch):
    return Profiled(monkeypatch)


def test_steps_are_profiled_without_what_precedes_them_and_without_their_queue(profiled):
    assert profiled.measured() == {
        (Load.IDLE, Cache.HOT): [[3_000], [3_000]],
        (Load.BUSY, Cache.COLD): [[3_000], [3_000]],
        (Load.BUSY, Cache.HOT): [[3_000], [3_000]],
    }
    assert profiled.device.flushes == 2


def test_a_spinning_kernel_of_calibration_is_what_is_profiled(profiled):
    assert profiled.calibrated() == [[700], [3_000]]


def test_a_call_is_made_in_two_ranges_and_the_device_waited_for_in_the_outer_one(profiled):
    log = []
    with module.profiler_session(lambda: log.append(f"wait {len(profiled.events)}")) as session:
        session.run(lambda: log.append("call"), lambda: log.append("ahead"))
    # The inner range is recorded before the wait, the outer one after it.
    assert log == ["wait 0", "ahead", "call", "wait 1"]
    assert [event.label for event in profiled.events] == ["bt_bench_call_0", "bt_bench_step_0"]


def test_measuring_and_calibration_share_one_session_and_one_sorter(profiled, monkeypatch):
    """Replaced in one place, either is replaced for both."""
    run = ProfilerSession.run

    def run_twice(session, call, *ahead):
        run(session, lambda: (call(), call()), *ahead)

    monkeypatch.setattr(ProfilerSession, "run", run_twice)
    assert profiled.calibrated() == [[700, 700], [3_000, 3_000]]
    assert profiled.measured()[Load.IDLE, Cache.HOT] == [[3_000, 3_000]] * 2
    monkeypatch.setattr(Recorded, "by_range", lambda _, num_ranges: [[]] * num_ranges)
    assert profiled.calibrated() == [[], []]
    assert profiled.measured()[Load.IDLE, Cache.HOT] == [[], []]
