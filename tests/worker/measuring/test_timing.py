"""The timing loop with a scripted clock and device: exact numbers in, exact numbers out."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
from support.scripted import ScriptedArm, ScriptedClock, ScriptedDevice

from bt_bench.base.limits import Throttling
from bt_bench.results.run.case import DiscardCode, RoundKind, StopReason
from bt_bench.results.run.nouns import Cache, LaunchPath, Load, Quantity
from bt_bench.results.run.plan import Plan
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import Workload
from bt_bench.worker.measuring.bench import cuda_probes
from bt_bench.worker.measuring.launch_paths import use
from bt_bench.worker.measuring.methods.graphs import measure_graphs
from bt_bench.worker.measuring.probes import (
    PIPELINED_CALLS,
    SHORTEST_QUEUE_US,
    BusyProbe,
    EventProbe,
    HostProbe,
    PipelinedProbe,
    StageProbe,
)
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.rounds import ReplayWindow
from bt_bench.worker.measuring.timing import FULL_PAIRS_PER_INSTANCE, Rounds
from bt_bench.worker.measuring.watch import NoTelemetry, SensorReading, Surroundings
from bt_bench.worker.tasks.arm import Arm
from bt_bench.worker.tasks.failures import ArmFailedError

JIT, COMPILED, DIRECT, GRAPH = LaunchPath


class Rig:
    """A scripted clock and device, with arms on them."""

    def __init__(self, *names, instances=1, operation=ops.GATHER_SLOTS, **arm):
        self.log = []
        self.clock = ScriptedClock()
        self.device = ScriptedDevice(self.clock)
        self.ledger = SimpleNamespace(loads=0)
        self.telemetry = NoTelemetry()
        self.throttling = Throttling
        arms = [
            [
                ScriptedArm(name, self.device, self.log, 10_000 + 5_000 * place, **arm)
                for place, name in enumerate(names)
            ]
            for _ in range(instances)
        ]
        self.window = ReplayWindow("case", arms, [1, 2], operation)

    def host(self, path=JIT):
        return HostProbe(self.clock, self.device, path)

    def run(self, probes, spot_checks=None, **plan):
        around = Surroundings(self.clock, self.telemetry, self.ledger, self.throttling)
        self.records = Records(self.window.names, around)
        plan = Plan(**({"warmup_rounds": 0, "precision_percent": 0, "case_seconds": 1e3} | plan))
        self.progress = []
        rounds = Rounds(
            self.window, probes, plan, self.clock, self.records, spot_checks=spot_checks
        )
        return rounds.run(self.progress.append)

    def samples(self, name, quantity, **condition):
        found = [
            measurement.samples
            for measurement in self.records.books[name].measurements()
            if measurement.quantity is quantity
            and all(getattr(measurement, key) is value for key, value in condition.items())
        ]
        assert len(found) == 1, found
        return found[0]


def test_exact_samples_of_an_idle_device():
    rig = Rig("a", "b")
    probes = [rig.host(), EventProbe(rig.device, JIT)]
    stopped = rig.run(probes, rounds=3, warmup_rounds=1)
    assert (stopped.reason, stopped.rounds) == (StopReason.ROUNDS, 3)
    assert rig.samples("a", Quantity.STAGE_US) == [[1.0, 2.0]] * 3
    assert rig.samples("a", Quantity.HOST_US) == [[10.0, 20.0]] * 3
    assert rig.samples("b", Quantity.HOST_US) == [[15.0, 30.0]] * 3
    assert rig.samples("b", Quantity.STEP_US) == [[18.0, 33.0]] * 3
    assert set(map(tuple, rig.samples("b", Quantity.EVENT_US))) == {(18.0, 33.0)}


def test_a_compiled_handle_is_a_series_of_its_own():
    rig = Rig("a")
    rig.run([rig.host(), rig.host(COMPILED)], rounds=2)
    assert rig.samples("a", Quantity.HOST_US, launch_path=JIT) == [[10.0, 20.0]] * 2
    assert rig.samples("a", Quantity.HOST_US, launch_path=COMPILED)[0] == [5.0, 10.0]
    assert len([m for m in rig.records.books["a"].measurements() if m.quantity == "stage_us"]) == 1


def test_a_direct_launch_is_a_series_of_its_own_where_tables_have_it():
    rig = Rig("a", "b")
    rig.window.instances[0][1].variant.launch_paths = ("jit", "compiled", "direct")
    plan = Plan(launch_paths=[JIT, DIRECT], loads=[Load.IDLE])
    rig.run(cuda_probes(plan, rig.clock, rig.device), rounds=2)
    assert rig.samples("b", Quantity.HOST_US, launch_path=DIRECT)[0] == [3.75, 7.5]
    for quantity in (Quantity.STEP_US, Quantity.EVENT_US, Quantity.PIPELINED_US):
        assert rig.samples("b", quantity, launch_path=DIRECT)
    assert {m.launch_path for m in rig.records.books["a"].measurements()} == {JIT}


def test_a_graph_is_captured_from_tritons_calls():
    rig = Rig("a")
    tables = rig.window.instances[0][0].variant
    tables.launch_paths = ("jit", "direct")
    use(rig.window.instances[0][0], DIRECT)
    assert tables.launch_path == "direct"
    use(rig.window.instances[0][0], GRAPH)
    assert tables.launch_path == "jit"


def test_an_arm_without_a_launch_path_has_no_samples_of_it():
    rig = Rig("a", "b")
    rig.window.instances[0][1].variant.launch_paths = ("jit",)
    rig.run([rig.host(COMPILED)], rounds=1)
    assert rig.records.books["a"].measurements()
    assert not rig.records.books["b"].measurements()


def test_a_busy_device_hides_the_host_and_shows_what_is_added():
    rig = Rig("a", gpu_ns=7_000)
    rig.run([BusyProbe(rig.clock, rig.device, JIT, Cache.COLD)], rounds=1)
    busy = {"load": Load.BUSY, "l2": Cache.COLD}
    assert rig.samples("a", Quantity.EVENT_US, **busy) == [[7.0, 7.0]]
    assert rig.samples("a", Quantity.HOST_US, **busy) == [[10.0, 20.0]]
    assert rig.device.flushes == 2
    (event, _host) = rig.records.books["a"].measurements()
    assert event.queue_us == SHORTEST_QUEUE_US


def test_a_queue_that_ends_too_early_is_doubled_for_that_arm_alone():
    rig = Rig("a", "b", operation=ops.STEP)
    rig.window.instances[0][1]._host_ns = 250_000  # 500 µs in the second step
    probe = BusyProbe(rig.clock, rig.device, JIT, Cache.HOT)
    rig.run([rig.host(), probe], rounds=4)
    assert rig.records.recorder.log_for("a").discarded == [None] * 4
    queues = {
        name: {m.queue_us for m in book.measurements() if m.load is Load.BUSY}
        for name, book in rig.records.books.items()
    }
    assert queues == {"a": {SHORTEST_QUEUE_US}, "b": {2 * SHORTEST_QUEUE_US}}
    busy = {"load": Load.BUSY}
    assert rig.samples("b", Quantity.EVENT_US, **busy)[0] == [3.0, 3.0]
    assert rig.samples("b", Quantity.HOST_US, **busy)[0] == [250.0, 500.0]


def test_a_call_that_waits_for_the_device_costs_nobody_else_their_samples():
    rig = Rig("good", "waits")
    waiting = rig.window.instances[0][1]
    bind = waiting.bind

    def synchronizing(operation, step):
        call = bind(operation, step)
        return lambda: (call(), rig.device.synchronize())

    waiting.bind = synchronizing
    busy = BusyProbe(rig.clock, rig.device, JIT, Cache.HOT)
    rig.run([rig.host(), EventProbe(rig.device, JIT), busy], rounds=16)
    series = {
        name: {(m.quantity, m.load) for m in book.measurements()}
        for name, book in rig.records.books.items()
    }
    assert series["good"] - series["waits"] == {
        (Quantity.EVENT_US, Load.BUSY),
        (Quantity.HOST_US, Load.BUSY),
    }
    assert (Quantity.EVENT_US, Load.IDLE) in series["waits"]
    assert rig.records.notes["good"] == []
    (note,) = rig.records.notes["waits"]
    assert "waits for the device" in note
    assert rig.records.recorder.num_discarded() == {}


@pytest.mark.parametrize(
    ("operation", "per_call"),
    # The host (10 µs) hides the device's 3 µs but those of the last call; a step stages 1 µs more.
    [(ops.GATHER_SLOTS, 10 + 3 / 8), (ops.STEP, 11 + 3 / 8)],
)
def test_pipelined_calls_pay_one_synchronisation(operation, per_call):
    rig = Rig("a", operation=operation)
    rig.run([PipelinedProbe(rig.clock, rig.device, JIT)], rounds=1)
    assert rig.samples("a", Quantity.PIPELINED_US)[0][0] == per_call
    assert PIPELINED_CALLS == 8


def test_graphs_pay_one_launch_and_their_slope_is_device_time():
    rig = Rig("a", "b", gpu_ns=5_000)
    rig.window.instances[0][1].variant.capturable = frozenset()
    rig.run([rig.host()], rounds=1)
    measure_graphs(rig.window, Plan(graph_rounds=2), rig.clock, rig.device, rig.records)
    assert rig.samples("a", Quantity.HOST_US, launch_path=GRAPH) == [[3.0, 3.0]] * 2
    assert rig.samples("a", Quantity.STEP_US, launch_path=GRAPH) == [[8.0, 8.0]] * 2
    assert rig.samples("a", Quantity.EVENT_US, launch_path=GRAPH) == [[8.0, 8.0]] * 2
    assert rig.samples("a", Quantity.GPU_US) == [[5.0, 5.0]] * 2
    assert rig.records.recorder.log_for("a").kind == [RoundKind.TIMED, *[RoundKind.REPLAYED] * 2]
    assert all(m.launch_path is JIT for m in rig.records.books["b"].measurements())


def test_a_replay_that_outlasts_its_queue_is_taken_again():
    rig = Rig("a", gpu_ns=5_000)
    rig.run([rig.host()], rounds=1)
    record_end, stalls = rig.device.record_end, iter([0, 150_000, 150_000] + [0] * 1000)

    def stalling():
        rig.clock.ns += next(stalls)
        record_end()

    rig.device.record_end = stalling
    measure_graphs(rig.window, Plan(graph_rounds=2), rig.clock, rig.device, rig.records)
    assert rig.samples("a", Quantity.GPU_US) == [[5.0, 5.0]] * 2


def test_arms_follow_each_other_within_a_step_and_orders_are_reversed():
    rig = Rig("a", "b", "c")
    rig.run([rig.host()], rounds=2, seed=4)
    calls = [line.split() for line in rig.log if "rewind" not in line]
    first, second = calls[:6], calls[6:]
    assert [step for _, _, step in first] == ["1", "1", "1", "2", "2", "2"]
    order = [name for name, _, step in first if step == "1"]
    assert sorted(order) == ["a", "b", "c"]
    assert [name for name, _, step in first if step == "2"] == order
    assert [name for name, _, step in second if step == "1"] == order[::-1]
    places = {name: rig.records.recorder.log_for(name).place for name in "abc"}
    assert [order[places["a"].__getitem__(0)], order[places["b"][0]]] == ["a", "b"]
    assert all(place[0] + place[1] == 2 for place in places.values())


def test_state_is_rewound_once_per_replay():
    rig = Rig("a")
    rig.run([rig.host()], rounds=2, warmup_rounds=1)
    assert rig.log.count("rewind a") == 3


def test_rarer_probes_go_through_all_instances_and_take_their_share_of_the_time():
    rig = Rig("a", instances=4)
    busy = BusyProbe(rig.clock, rig.device, JIT, Cache.HOT)
    rig.run([rig.host(), busy], rounds=64)
    log = rig.records.recorder.log_for("a")
    by_load = {m.load: m.rounds for m in rig.records.books["a"].measurements()}
    assert len(by_load[Load.IDLE]) == 64
    assert 16 <= len(by_load[Load.BUSY]) < 64
    counts = [[log.instance[r] for r in by_load[Load.BUSY]].count(i) for i in range(4)]
    assert max(counts) - min(counts) <= 2


def test_staging_alone():
    rig = Rig("a")
    rig.run([StageProbe(rig.clock)], rounds=1)
    assert rig.samples("a", Quantity.STAGE_US) == [[1.0, 2.0]]


def test_rounds_and_the_time_left_are_reported():
    rig = Rig("a")
    rig.run([rig.host()], rounds=3)
    assert [(p.done, p.rounds) for p in rig.progress] == [(1, 3), (2, 3), (3, 3)]
    # Each round takes as long as the others, and nothing is asked for but their number.
    assert rig.progress[0].seconds_left == pytest.approx(2 * rig.progress[2].seconds_left + 2e-3, 2)
    assert rig.progress[2].seconds_left == 0


def test_the_time_limit_ends_the_rounds():
    rig = Rig("a")
    stopped = rig.run([rig.host()], rounds=1000, case_seconds=0.01)
    assert stopped.reason is StopReason.TIME
    assert stopped.rounds < 1000


def test_spot_checks_take_none_of_the_time_of_the_rounds():
    """On an H200 one of tables of 105 MiB took 2 s, and left a case with two rounds."""
    rig = Rig("a")
    alone = rig.run([rig.host()], rounds=1000, case_seconds=0.01)
    rig = Rig("a")
    among = rig.run([rig.host()], SlowChecks(rig.clock), rounds=1000, case_seconds=0.01)
    assert (among.reason, among.rounds) == (StopReason.TIME, alone.rounds)
    assert among.seconds > 1
    assert rig.progress[-2].seconds_left > 0


class SlowChecks:
    """A check of one second before each pair of rounds."""

    def __init__(self, clock):
        self._clock = clock

    def perhaps(self, *_arguments, **_options):
        self._clock.ns += 1_000_000_000
        return True


def test_equal_samples_are_precise_at_the_fewest_rounds():
    rig = Rig("a")
    stopped = rig.run([rig.host()], rounds=100, min_rounds=10, precision_percent=1)
    assert (stopped.reason, stopped.rounds) == (StopReason.PRECISE, 10)


def test_a_round_in_which_something_was_compiled_does_not_count():
    rig = Rig("a")
    arm = rig.window.instances[0][0]
    bind = arm.bind

    def compiling(operation, step):
        rig.ledger.loads += len([line for line in rig.log if "rewind" not in line]) == 2
        return bind(operation, step)

    arm.bind = compiling
    rig.run([rig.host()], rounds=3)
    assert rig.records.recorder.log_for("a").discarded == [None, DiscardCode.COMPILED, None]


def test_a_throttled_round_does_not_count():
    rig = Rig("a")
    readings = iter(
        [
            SensorReading(sm_clock_mhz=1980),  # when the records are made
            SensorReading(sm_clock_mhz=1980),  # when the rounds begin
            SensorReading(sm_clock_mhz=1980),
            SensorReading(sm_clock_mhz=1980, throttle_reasons=("hw_thermal",)),
            SensorReading(sm_clock_mhz=1500),
            SensorReading(sm_clock_mhz=1980),
            SensorReading(sm_clock_mhz=1980),
        ]
    )
    rig.telemetry = SimpleNamespace(read=lambda: next(readings))
    rig.run([rig.host()], rounds=5)
    throttled, clock = DiscardCode.THROTTLED, DiscardCode.CLOCK
    log = rig.records.recorder.log_for("a")
    assert log.discarded == [None, throttled, throttled, None, None]
    assert log.sm_clock_mhz == [1980, 1980, 1500, 1500, 1980]
    rig.records.discard_slow_rounds()
    log = rig.records.recorder.log_for("a")
    assert log.discarded == [None, throttled, throttled, clock, None]
    (host, *_) = rig.records.books["a"].measurements()
    assert host.rounds == [0, 4]


def test_a_round_in_which_the_cpu_quota_stopped_the_process_does_not_count():
    rig = Rig("a")
    # Of periods, or of time in one that has not ended; when the records are made and rounds begin.
    readings = iter([(3, 900.0), (3, 900.0), (3, 900.0), (4, 900.0), (4, 980.0), (4, 980.0)])
    rig.throttling = lambda: Throttling(*next(readings))
    rig.run([rig.host()], rounds=4)
    quota = DiscardCode.QUOTA
    assert rig.records.recorder.log_for("a").discarded == [None, quota, quota, None]
    (host, *_) = rig.records.books["a"].measurements()
    assert host.rounds == [0, 3]


def test_a_case_does_not_stop_before_the_rarer_probes_had_their_share():
    rig = Rig("a", instances=2)
    probes = [rig.host(), EventProbe(rig.device, JIT)]
    stopped = rig.run(probes, rounds=400, min_rounds=2, precision_percent=1)
    assert stopped.reason is StopReason.PRECISE
    event = next(m for m in rig.records.books["a"].measurements() if m.quantity == "event_us")
    assert len(event.rounds) == 2 * 2 * FULL_PAIRS_PER_INSTANCE


def test_staging_does_not_decide_how_long_a_gpu_is_measured():
    probe = HostProbe(ScriptedClock(), None, JIT)
    assert {series.quantity for series in probe.deciding} == {Quantity.HOST_US, Quantity.STEP_US}
    assert StageProbe(ScriptedClock()).deciding == StageProbe.series


def test_a_failing_arm_is_named_and_collection_is_on_again():
    rig = Rig("a", fails_at=2)
    with pytest.raises(ArmFailedError) as caught:
        rig.run([rig.host()], rounds=1)
    assert caught.value.arm == "a"
    assert caught.value.reason().message.startswith("while measured: RuntimeError: broken")
    assert gc.isenabled()


def test_arm_says_which_variant_failed_to_build():
    class Broken:
        def __init__(self, layout, device):
            raise RuntimeError("no memory for you")

    workload = Workload(None, "int64", (), ())
    with pytest.raises(ArmFailedError, match="broken: no memory for you"):
        Arm("broken", Broken, workload, "cpu")
