"""Calibration with a scripted clock and device: exact numbers in, exact numbers out."""

from __future__ import annotations

import gc
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.scripted import GRAPH_LAUNCH_NS, ScriptedClock, ScriptedDevice

from bt_bench.results.run.nouns import Method, Quantity
from bt_bench.worker.measuring.calibration import calibrate
from bt_bench.worker.measuring.calibration.calibrate import calibrate_host, calibrate_with
from bt_bench.worker.measuring.calibration.copies import MOVED_BYTES
from bt_bench.worker.measuring.calibration.overhead import LaunchRoute
from bt_bench.worker.measuring.calibration.work import QUICK, THOROUGH, DeviceWork, Effort
from bt_bench.worker.measuring.profiler_session import DeviceActivity

EFFORT = Effort(rounds=3, launches=10, spin_us=(3, 50), line_rounds=2, passes=2, copies=3)

TICK_NS = 10  # every reading of the clock takes as long
LAUNCH_NS = 4_000
EVENT_NS = 1_000
REPLAY_US = (GRAPH_LAUNCH_NS + TICK_NS) / 1e3
SYNCHRONIZE_NS = 2_000
NULL_NS = 500  # of an empty kernel, and on top of the length of others
RECORDED_NS = 80  # by which the profiler's durations are longer
HOT_NS, COLD_NS = 3_000, 5_000


class Device(ScriptedDevice):
    """Notes what it ran; the host takes some time for each call."""

    def __init__(self, launch_ns=LAUNCH_NS):
        super().__init__(ScriptedClock(TICK_NS))
        self.launch_ns = launch_ns
        self.ran = []
        self.blockers_us = []
        self.l2_is_warm = False
        self.cold_ns = 0  # what the first launch after a pair of events takes longer
        self._is_cold = False

    def run(self, name, device_ns, host_ns=None):
        """Enqueues an operation, or adds it to the graph that is captured."""
        if self._captured is None:
            self.clock.ns += self.launch_ns if host_ns is None else host_ns
            self.clock.ns += self.cold_ns * self._is_cold
            self._is_cold = False
        self.enqueue((name, device_ns))

    def enqueue(self, work):
        if self._captured is not None:
            self._captured.append(work)
            return
        name, device_ns = work
        super().enqueue(device_ns)
        start_ns = self.idle_from_ns - device_ns
        self.ran.append(DeviceActivity("kernel", name, start_ns, device_ns + RECORDED_NS))

    def synchronize(self):
        super().synchronize()
        self.clock.ns += SYNCHRONIZE_NS

    def record_start(self):
        super().record_start()
        self.clock.ns += EVENT_NS

    def record_end(self):
        super().record_end()
        self.clock.ns += EVENT_NS
        self._is_cold = True

    def occupy(self, duration_us):
        self.blockers_us.append(duration_us)
        self.run("blocker", round(duration_us * 1e3))

    def flush_l2(self):
        self.l2_is_warm = False
        self.run("flush", 40_000)

    def read(self):
        self.run("read", HOT_NS if self.l2_is_warm else COLD_NS)
        self.l2_is_warm = True


class ScriptedProfiler:
    """Hands out what ran in each call, less what it drops in each session."""

    def __init__(self, device, drops=()):
        self._device = device
        self._drops = list(drops)
        self.sessions = 0

    def __call__(self, calls):
        self.sessions += 1
        dropped = self._drops.pop(0) if self._drops else None
        found = []
        for index, call in enumerate(calls):
            self._device.synchronize()
            before = len(self._device.ran)
            call()
            self._device.synchronize()
            found.append(self._device.ran[before : -1 if index == dropped else None])
        return found


def work_on(device, profile=None):
    """The kernels of calibration, as the script has them."""

    def null():
        device.run("null", NULL_NS)

    return DeviceWork(
        launch_null=null,
        launch_spin=lambda duration_ns: device.run("spin", duration_ns + NULL_NS),
        read=device.read,
        read_bytes=1000,
        l2_bytes=8000,
        flushed_bytes=16_000,
        routes=[LaunchRoute("fast", "a fast one", lambda: device.run("null", NULL_NS, 1_500))],
        profile=profile or ScriptedProfiler(device),
        copy=lambda moved: device.run("copy", moved),
        copied_bytes=[1024, 2048],
    )


@pytest.fixture
def device():
    return Device()


def run(device, profile=None, effort=EFFORT):
    return calibrate_with(device.clock, device, lambda _: work_on(device, profile), effort)


def test_figures(device):
    calibration = run(device)
    assert {figure.name: figure.samples[:2] for figure in calibration.figures} == {
        name: [pytest.approx(value)] * 2
        for name, value in {
            "empty_call": 0.01,
            "empty_call_first": 0.01,
            "timer_tick": 0.01,
            "event_floor": 1.0,
            "event_floor_busy": 0.0,
            "event_null_busy": 0.5,
            "synchronize": 2.01,
            "null_host": 4.01,
            "null_gpu": 0.58,
            "null_step": 6.51,  # a reading within passes while the device is busy
            "null_graph_host": REPLAY_US,
            "null_graph_step": REPLAY_US + 2.5,
            "spin_host": 4.01,
            "spin_step": 16.51,
            "spin_graph_host": REPLAY_US,
            "spin_graph_step": REPLAY_US + 12.5,
            "replay": REPLAY_US,
            "replay_profiled": REPLAY_US,
            "fast": 1.501,
        }.items()
    }


def test_every_figure_says_what_it_is(device):
    what = {figure.name: figure.what for figure in run(device).figures}
    assert what["fast"] == "launching: a fast one"
    assert all(what.values())


def test_lines(device):
    lines = {line.method: line for line in run(device).lines}
    for method, samples, above_us in (
        (Method.PROFILER, 2, 0.58),
        (Method.GRAPH_SLOPE, 2, 0.5),
        (Method.EVENTS, 2, 0.5),
    ):
        assert lines[method].set_us == [3, 50]
        assert lines[method].reported_us == [
            [pytest.approx(3 + above_us)] * samples,
            [pytest.approx(50 + above_us)] * samples,
        ]


def test_chains(device):
    chains = run(device).chains
    assert [(chain.launched, chain.counted) for chain in chains] == [(2, 2), (4, 4), (8, 8)]


def test_injected_delay(device):
    injection = run(device).injection
    assert injection.delay_us == 20
    assert injection.pause_us == 100
    assert injection.without[Quantity.HOST_US] == [pytest.approx(104.01, abs=0.02)] * 2
    assert injection.without[Quantity.GPU_US] == [pytest.approx(10.58)] * 2
    moved = {
        quantity: injection.with_delay[quantity][0] - injection.without[quantity][0]
        for quantity in injection.without
    }
    assert moved[Quantity.HOST_US] == pytest.approx(20, abs=0.03)
    assert moved[Quantity.STEP_US] == pytest.approx(20, abs=0.03)
    assert moved[Quantity.GPU_US] == 0


def test_the_first_launch_after_other_work_is_not_set_against_the_delay(device):
    device.cold_ns = 10_000
    injection = run(device).injection
    for quantity in (Quantity.HOST_US, Quantity.STEP_US):
        for without, delayed in zip(
            injection.without[quantity], injection.with_delay[quantity], strict=True
        ):
            assert delayed - without == pytest.approx(20, abs=0.03)


def test_neither_of_the_delays_is_always_the_first(device):
    noted = []

    def host_and_step(delay_us):
        noted.append(delay_us)
        return delay_us + 1, delay_us + 2

    timers = SimpleNamespace(delayed=lambda _, delay_us: delay_us, host_and_step=host_and_step)
    sampler = calibrate._delay_sampler(timers, work_on(device))
    assert [sampler.sample() for _ in range(2)] == [(101, 102, 121, 122)] * 2
    assert noted == [100, 100, 120, 100, 120, 100]


def test_flush(device):
    flush = run(device).flush
    assert (flush.l2_bytes, flush.flushed_bytes, flush.read_bytes) == (8000, 16_000, 1000)
    assert (flush.hot, flush.cold) == ([3.0] * 2, [5.0] * 2)


def test_copies(device):
    copies = run(device).copies
    assert copies.moved_bytes == [1024, 2048]
    assert copies.samples == [[pytest.approx(1.104)] * 3, [pytest.approx(2.128)] * 3]


def test_the_time_it_took(device):
    started = device.clock.ns
    seconds = run(device).seconds
    assert seconds == pytest.approx((device.clock.ns - started) / 1e9, abs=1e-3)
    assert seconds > 0


def test_dropped_records_are_taken_again(device):
    profiler = ScriptedProfiler(device, drops=[0, 4])
    calibration = run(device, profiler)
    assert profiler.sessions == 3 + 1  # and one for copies
    assert [chain.counted for chain in calibration.chains] == [2, 4, 8]


def test_what_is_dropped_every_time_is_not_made_up(device):
    # The first chain, and the only samples of 3 µs.
    effort = Effort(rounds=1, launches=1, spin_us=(3, 50), line_rounds=1, passes=1, copies=1)
    chain = run(device, ScriptedProfiler(device, drops=[0, 0, 0]), effort).chains[0]
    assert (chain.launched, chain.counted) == (2, 1)
    lines = run(device, ScriptedProfiler(device, drops=[3, 3, 3]), effort).lines
    assert lines[0].method is Method.PROFILER
    assert lines[0].set_us == [50]


def test_a_profiler_that_records_nothing_leaves_its_line_out(device):
    calibration = run(device, lambda calls: [[] for _ in calls])
    assert [line.method for line in calibration.lines] == [Method.GRAPH_SLOPE, Method.EVENTS]
    assert calibration.injection.without[Quantity.GPU_US] == []
    assert [chain.counted for chain in calibration.chains] == [0, 0, 0]
    assert calibration.samples("null_gpu") is None
    assert calibration.copies.moved_bytes == []


def test_without_passes_nothing_is_profiled(device):
    profiler = ScriptedProfiler(device)
    calibration = run(device, profiler, replace(EFFORT, passes=0))
    assert profiler.sessions == 0
    assert [line.method for line in calibration.lines] == [Method.GRAPH_SLOPE, Method.EVENTS]
    assert calibration.chains == []
    assert calibration.samples("replay") is not None
    assert calibration.samples("replay_profiled") is None
    assert calibration.samples("null_gpu") is None
    assert calibration.copies is None
    assert calibration.injection.without[Quantity.GPU_US] == []


def test_the_blocker_is_lengthened_until_it_outlasts_the_launches():
    device = Device(launch_ns=150_000)
    calibration = run(device)
    assert max(device.blockers_us) == 200
    assert calibration.samples("event_null_busy") == [0.5] * 3
    assert calibration.flush.cold == [5.0] * 2


def test_a_host_that_is_never_fast_enough_leaves_the_figure_out():
    device = Device(launch_ns=30_000_000)
    calibration = run(device)
    assert max(device.blockers_us) == 20_000
    assert calibration.samples("event_null_busy") is None
    assert calibration.samples("null_host") is not None
    assert Method.EVENTS not in {line.method for line in calibration.lines}


def test_the_collector_is_on_again(device):
    run(device)
    assert gc.isenabled()


def test_without_a_gpu():
    calibration = calibrate_host(ScriptedClock(TICK_NS))
    assert [figure.name for figure in calibration.figures] == [
        "empty_call",
        "empty_call_first",
        "timer_tick",
    ]
    assert set(calibration.samples("empty_call")) == {0.01}
    assert calibration.lines == []
    assert calibration.injection is None


def test_a_clock_that_stands_still_for_a_while_has_its_tick_found():
    class CoarseClock:
        """Reads the same for 1000 readings, then 16 µs more."""

        readings = 0

        def now_ns(self):
            self.readings += 1
            return self.readings // 1000 * 16_000

    assert set(calibrate_host(CoarseClock()).samples("timer_tick")) == {16.0}


def test_thorough_takes_more_of_everything():
    assert THOROUGH.rounds > QUICK.rounds
    assert set(THOROUGH.spin_us) > set(QUICK.spin_us)
    assert THOROUGH.line_rounds > QUICK.line_rounds
    assert THOROUGH.passes > QUICK.passes
    assert THOROUGH.copies > QUICK.copies


@pytest.mark.gpu
@pytest.mark.alone
def test_on_this_gpu():
    from bt_bench.worker.measuring.calibration.calibrate import calibrate
    from bt_bench.worker.measuring.ports import CudaPort, SystemClock

    calibration = calibrate(SystemClock(), CudaPort(), thorough=False)
    assert all(chain.counted == chain.launched for chain in calibration.chains)
    assert {line.method for line in calibration.lines} == {
        Method.PROFILER,
        Method.GRAPH_SLOPE,
        Method.EVENTS,
    }
    assert calibration.copies.moved_bytes == list(MOVED_BYTES)
    assert all(len(samples) == QUICK.copies for samples in calibration.copies.samples)
    assert 0.2 < calibration.samples("null_gpu")[0] < 10
