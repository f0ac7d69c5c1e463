"""The timed regions: what is in them, and that calibration times with those of measuring."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from support.scripted import ScriptedArm, ScriptedClock, ScriptedDevice

from bt_bench.results.run.nouns import LaunchPath, Method
from bt_bench.results.run.plan import Plan
from bt_bench.suites.block_tables import operations as ops
from bt_bench.worker.measuring.bench import cuda_probes
from bt_bench.worker.measuring.calibration.calibrate import calibrate_with
from bt_bench.worker.measuring.calibration.overhead import LaunchRoute
from bt_bench.worker.measuring.calibration.work import DeviceWork, Effort
from bt_bench.worker.measuring.methods.graphs import measure_graphs
from bt_bench.worker.measuring.probes import StageProbe
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.regions import (
    GraphSlope,
    between_events,
    between_events_and_readings,
    host_time_in_a_row,
    host_time_restaging,
    host_times,
    outlasted,
    queue_ahead,
)
from bt_bench.worker.measuring.rounds import ReplayWindow
from bt_bench.worker.measuring.timing import Rounds
from bt_bench.worker.measuring.watch import NoTelemetry, Surroundings

TICK_NS = 100  # waits of some µs read the clock until they end


class Log(list):
    """A clock and a device that note what is asked of them; each reading is 1 µs later."""

    def __getattr__(self, name):
        return lambda *arguments: self.append(" ".join((name, *map(str, arguments))))

    def now_ns(self):
        self.append("now")
        return 1000 * self.count("now")

    def start_has_passed(self):
        self.append("start_has_passed")
        return False


@pytest.fixture
def log():
    return Log()


def test_host_times_have_the_call_and_then_the_wait_between_three_readings(log):
    assert host_times(log, log.call, log.wait) == (1.0, 2.0)
    assert log == ["now", "call", "now", "wait", "now"]


def test_calls_in_a_row_have_one_wait_and_no_reading_between(log):
    assert host_time_in_a_row(log, log.call, 2, log.wait) == 0.5
    assert log == ["now", "call", "call", "wait", "now"]


def test_restaged_calls_start_from_the_same_block_counts(log):
    num_blocks = np.array([[3]], dtype=np.int32)
    seen = []

    def stage():
        seen.append(int(num_blocks[0, 0]))
        num_blocks[0, 0] += 1

    undo = partial(num_blocks.__setitem__, ..., np.array(num_blocks))
    assert host_time_restaging(log, log.call, 2, log.wait, stage, undo) == 0.5
    assert log == ["now", "call", "call", "wait", "now"]
    assert seen == [3, 3]


def test_events_have_nothing_but_the_call_between_them(log):
    between_events(log, log.call)
    assert log == ["record_start", "call", "record_end"]


def test_readings_between_events_are_right_around_the_call(log):
    assert between_events_and_readings(log, log, log.call) == 1.0
    assert log == ["record_start", "now", "call", "now", "record_end"]


def test_a_queue_is_put_ahead_of_an_idle_device_and_asked_for_before_it_is_waited_for(log):
    queue_ahead(log, 300.0, log.flush)
    assert log == ["synchronize", "flush", "occupy 300.0"]
    log.clear()
    assert outlasted(log)
    assert log == ["start_has_passed", "synchronize"]


def measured(operation):
    """The samples of everything that is timed without the profiler, by series."""
    clock = ScriptedClock(TICK_NS)
    device = ScriptedDevice(clock)
    window = ReplayWindow("case", [[ScriptedArm("arm", device, [])]], [1, 2], operation)
    around = Surroundings(clock, NoTelemetry(), SimpleNamespace(loads=0))
    records, staging = Records(["arm"], around), Records(["arm"], around)
    plan = Plan(rounds=4, warmup_rounds=0, graph_rounds=2, launch_paths=list(LaunchPath))
    Rounds(window, cuda_probes(plan, clock, device), plan, clock, records).run(lambda _: None)
    measure_graphs(window, plan, clock, device, records)
    Rounds(window, [StageProbe(clock)], plan, clock, staging).run(lambda _: None)
    found = {}
    for measurement in records.books["arm"].measurements():
        condition = measurement.method, measurement.launch_path, measurement.load
        found[measurement.quantity, *condition] = measurement.samples
    (alone,) = staging.books["arm"].measurements()
    return found | {"staging alone": alone.samples}


def calibrated():
    """The samples of all figures and lines that are timed without the profiler."""
    clock = ScriptedClock(TICK_NS)
    device = ScriptedDevice(clock)

    def launch(duration_ns=500):
        device.host(4_000)
        device.enqueue(duration_ns)

    work = DeviceWork(
        launch_null=launch,
        launch_spin=launch,
        read=launch,
        read_bytes=1,
        l2_bytes=1,
        flushed_bytes=1,
        routes=[LaunchRoute("route", "one of them", launch)],
        profile=lambda calls: [[] for _ in calls],
        copy=launch,
        copied_bytes=[],
    )
    effort = Effort(rounds=2, launches=2, spin_us=(3, 50), line_rounds=2, passes=1, copies=1)
    calibration = calibrate_with(clock, device, lambda _: work, effort)
    found = {figure.name: figure.samples for figure in calibration.figures}
    found |= {line.method: line.reported_us for line in calibration.lines}
    found |= {f"injected {q}": taken for q, taken in calibration.injection.without.items() if taken}
    return found | {"hot": calibration.flush.hot, "cold": calibration.flush.cold}


def other_host_times(clock, call, wait):
    return 1111.0, 2222.0


def other_host_time_in_a_row(clock, call, count, wait):
    return 1111.0


def other_host_time_restaging(clock, call, count, wait, stage, undo):
    return 1111.0


def other_between_events(device, call):
    device.record_start()
    call()
    call()  # which a slope shows, while it does not show what every graph has once
    device.occupy(1e6)
    device.record_end()


def other_between_events_and_readings(clock, device, call):
    device.record_start()
    device.occupy(1e6)
    device.record_end()
    return 1111.0


def other_outlasted(device):
    device.synchronize()
    return False


def other_sample_us(self, replays):
    return 1111.0


IDLE_STEPS = {("host_us", "host_clock", path, "idle") for path in ("jit", "compiled", "graph")} | {
    ("step_us", "host_clock", path, "idle") for path in ("jit", "compiled", "graph")
}
IDLE_EVENTS = {("event_us", "events", path, "idle") for path in ("jit", "compiled", "graph")}
PIPELINED = {("pipelined_us", "host_clock", path, "idle") for path in ("jit", "compiled")}
BUSY = {("event_us", "events", "jit", "busy"), ("host_us", "host_clock", "jit", "busy")}
SLOPE = {("gpu_us", "graph_slope", "graph", "idle")}
BUSY_FIGURES = {"event_floor_busy", "event_null_busy", Method.EVENTS, "hot", "cold"}

# Per region and what takes its place: which series and which figures become others.
USES = [
    (
        host_times,
        other_host_times,
        IDLE_STEPS | {("stage_us", "host_clock", "jit", "idle"), "staging alone"},
        {
            "empty_call",
            "empty_call_first",
            "synchronize",
            *(f"{work}_{end}" for work in ("null", "spin") for end in ("host", "step")),
            *(f"{work}_graph_{end}" for work in ("null", "spin") for end in ("host", "step")),
            "replay",
            "replay_profiled",
            "injected host_us",
            "injected step_us",
        },
    ),
    (host_time_in_a_row, other_host_time_in_a_row, PIPELINED, {"route"}),
    (
        between_events,
        other_between_events,
        IDLE_EVENTS | SLOPE,
        {"event_floor", Method.GRAPH_SLOPE},
    ),
    (between_events_and_readings, other_between_events_and_readings, BUSY, BUSY_FIGURES),
    (outlasted, other_outlasted, BUSY, BUSY_FIGURES),
    (GraphSlope.sample_us, other_sample_us, SLOPE, {Method.GRAPH_SLOPE}),
]


def changed(before, after):
    """What has other samples now, or none."""
    return {key for key, samples in before.items() if after.get(key) != samples}


@pytest.mark.parametrize(("region", "other", "series", "figures"), USES)
def test_a_region_is_one_function_for_measuring_and_calibration(
    monkeypatch, region, other, series, figures
):
    """Replaced in one place, it is replaced wherever the region is timed, and nowhere else."""
    before = measured(ops.GATHER_SLOTS), calibrated()
    monkeypatch.setattr(region, "__code__", other.__code__)
    assert changed(before[0], measured(ops.GATHER_SLOTS)) == series
    assert changed(before[1], calibrated()) == figures


def test_steps_in_a_row_are_staged_again_in_a_region_of_their_own(monkeypatch):
    before = measured(ops.STEP)
    monkeypatch.setattr(host_time_restaging, "__code__", other_host_time_restaging.__code__)
    assert changed(before, measured(ops.STEP)) == PIPELINED


def test_calibration_times_nothing_but_regions():
    """All that it reports is above, but for the clock's own tick; so is all that is measured."""
    figures = {figure for _, _, _, figures in USES for figure in figures}
    assert calibrated().keys() == figures | {"timer_tick"}
    series = {one for _, _, series, _ in USES for one in series}
    assert measured(ops.GATHER_SLOTS).keys() == series
