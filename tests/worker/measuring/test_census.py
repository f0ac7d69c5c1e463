"""Counting launches: under the interpreter, and from a profiler's records."""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from support.kineto import Event
from support.scripted import ScriptedClock
from support.variants import SHIPPED, classes

from bt_bench.protocol import build_workload
from bt_bench.results.run.case import LaunchCensus
from bt_bench.results.run.nouns import Cache, Load, Quantity
from bt_bench.results.run.plan import Plan
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.driver import TableDriver
from bt_bench.suites.block_tables.inputs import inputs_on
from bt_bench.suites.block_tables.workloads import UniformParameters
from bt_bench.variants.catalogue import find_variants, load_apart
from bt_bench.worker.measuring.bench import CpuBench, CudaBench
from bt_bench.worker.measuring.case import measure_case
from bt_bench.worker.measuring.device_kernels import FLUSH_KERNEL_NAME, SPIN_KERNEL_NAME
from bt_bench.worker.measuring.methods import profiler as cupti_census
from bt_bench.worker.measuring.methods.device_times import (
    IDLE,
    ProfilerIncompleteError,
    activities_by_range,
    census_of,
    settings_of,
    times_ns,
)
from bt_bench.worker.measuring.methods.interpreter import count_launches
from bt_bench.worker.measuring.methods.profiler import profile_window
from bt_bench.worker.measuring.profiler_session import (
    CALL_RANGE,
    STEP_RANGE,
    DeviceActivity,
    sort_events,
)
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.watch import NoTelemetry, Surroundings
from bt_bench.worker.tasks.arm import Arm


def workload(groups, staged_writes=2):
    return build_workload(
        UniformParameters(
            groups=groups,
            requests=2,
            tokens=4,
            staged_writes=staged_writes,
            max_num_reqs=4,
            max_num_batched_tokens=8,
            max_model_len=64,
        )
    )


LAUNCHES = {
    "baseline": lambda groups: groups + 2,
    "fused_apply": lambda groups: 3,
    "fused_gather_slots": lambda groups: groups + 1,
    "fused": lambda groups: 2,
    "one_launch": lambda groups: 1,
    "one_launch_graph": lambda groups: 1,
}


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("name", SHIPPED)
def test_launches_of_a_step_under_the_interpreter(name, groups):
    work = workload(groups)
    arm = Arm(name, classes([name])[name], work, torch.device("cpu"))
    steps = inputs_on(torch.device("cpu"), work)
    census = count_launches(arm, steps, ops.STEP)
    assert census.totals() == [LAUNCHES[name](groups)]
    assert {launch.kind for launch in census.steps[0]} == {"kernel"}


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_launches_of_a_step_on_the_gpu(groups, device):
    """Counted by CUPTI: `fused` makes 2 launches for every G, `baseline` G + 2."""
    bench = CudaBench()
    results = measure_case(
        "case",
        # Loaded apart, so that their kernels are loaded where the ledger sees it.
        {name: load_apart(find_variants()[name]) for name in SHIPPED},
        workload(groups),
        ops.STEP,
        Plan(rounds=2, warmup_rounds=1, instances=1, profile_rounds=2, graph_rounds=2),
        bench,
        lambda progress: None,
    )
    for name, measured in results.items():
        assert measured.reason is None
        assert measured.launches.counted_by == "cupti"
        assert measured.launches.totals() == [LAUNCHES[name](groups)], name
        assert {launch.kind for launch in measured.launches.steps[0]} == {"kernel"}
        assert {m.quantity for m in measured.measurements} == set(Quantity)
        assert [kernel for kernel in measured.compiled if len(kernel.hashes) != 1] == []


def test_nothing_staged_is_no_launch():
    work = workload(2, staged_writes=0)
    arm = Arm("fused", classes(["fused"])["fused"], work, torch.device("cpu"))
    steps = inputs_on(torch.device("cpu"), work)
    assert count_launches(arm, steps, ops.APPLY).totals() == [0]
    assert count_launches(arm, steps, ops.STEP).totals() == [1]


def test_torch_operations_are_counted_and_views_are_not():
    fused = classes(["fused"])["fused"]

    class Copying(fused):
        def apply_staged_writes(self):
            self.slot_mappings[:, 1:].fill_(3)
            self.slot_mappings.copy_(self.slot_mappings.clone())
            super().apply_staged_writes()

    work = workload(1)
    arm = Arm("copying", Copying, work, torch.device("cpu"))
    another_test_did = "torch._dynamo" in sys.modules
    census = count_launches(arm, inputs_on(torch.device("cpu"), work), ops.APPLY)
    assert {(launch.kind, launch.name, launch.count) for launch in census.steps[0]} == {
        ("kernel", "apply_writes_kernel", 1),
        ("torch_op", "fill_", 1),
        ("torch_op", "copy_", 1),
        ("torch_op", "clone", 1),
    }
    # torch imports all of it, which takes seconds, for a mode that does not say that it may not.
    assert another_test_did or "torch._dynamo" not in sys.modules


def test_a_plan_without_profiled_rounds_starts_no_profiler(monkeypatch):
    def refuse(*_arguments):
        raise AssertionError("a profiler was started")

    def calibrated(_clock, _port, *, thorough, profiles):
        return thorough, profiles

    for name in ("profile_window", "profile_together", "profiler_session"):
        monkeypatch.setattr(f"bt_bench.worker.measuring.bench.{name}", refuse)
    monkeypatch.setattr("bt_bench.worker.measuring.bench.calibrate", calibrated)
    bench = object.__new__(CudaBench)  # which no GPU is needed for
    bench.around, bench._port = SimpleNamespace(clock=None), None
    window = SimpleNamespace(operation=ops.STEP)
    none, some = Plan(profile_rounds=0), Plan(profile_rounds=1)
    assert bench.census(window, none, None) == {}
    assert bench.profiled_ways(ops.STEP, none) == []
    assert len(bench.profiled_ways(ops.STEP, some)) == 1
    assert (bench.calibrate(none), bench.calibrate(some)) == ((False, False), (False, True))


def test_cpu_bench_measures_staging_only():
    plan = Plan(rounds=2, warmup_rounds=1, instances=1, control=False)
    heard = []
    results = measure_case(
        "case", classes(["fused"]), workload(1), ops.STEP, plan, CpuBench(), heard.append
    )
    phases = {each.what: (each.done, each.rounds) for each in heard}
    among = phases.pop("checking among the timed rounds")
    assert among[0] == among[1] > 0
    after = phases.pop("checking after timing")
    assert after[0] == after[1] > 0
    assert phases == {"warming up": (1, 1), "measuring": (2, 2), "counting launches": (0, 1)}
    (measurement,) = results["fused"].measurements
    assert measurement.quantity is Quantity.STAGE_US
    assert len(measurement.samples) == 2


def ranges(index, start, returned, end):
    """The two ranges of a step: the call, and the synchronisation after it."""
    return (
        Event(f"{STEP_RANGE}{index}", start, end - start, on_device=False),
        Event(f"{CALL_RANGE}{index}", start, returned - start, on_device=False),
    )


def test_activities_go_to_the_range_that_they_lie_in():
    by_range, late = activities_by_range(
        sort_events(
            (
                Event("restore", 5, 2),
                *ranges(1, 100, 110, 150),
                *ranges(0, 10, 30, 60),
                Event(f"{STEP_RANGE}0", 12, 30),  # the range's shadow on the device
                Event("Memcpy HtoD", 40, 5),
                Event("gather", 20, 9),
                Event("between", 70, 9),
                Event("Memset", 120, 5),
                Event("cudaLaunchKernel", 15, 1, on_device=False),
            )
        ),
        [False, False],
    )
    assert late == set()
    assert [[(a.kind, a.name) for a in activities] for activities in by_range] == [
        [("kernel", "gather"), ("copy", "Memcpy HtoD")],
        [("memset", "Memset")],
    ]


def test_the_queue_of_a_busy_device_is_no_part_of_the_step():
    events = (
        *ranges(0, 10, 30, 60),
        Event(FLUSH_KERNEL_NAME, 11, 1),
        Event(SPIN_KERNEL_NAME, 12, 28),
        Event("gather", 41, 9),
    )
    (step,), late = activities_by_range(sort_events(events), [True])
    assert [activity.name for activity in step] == ["gather"]
    assert late == set()


def test_a_queue_that_ended_before_the_call_returned_is_noticed():
    events = (*ranges(0, 10, 30, 60), Event(SPIN_KERNEL_NAME, 12, 10))
    assert activities_by_range(sort_events(events), [True])[1] == {0}
    with pytest.raises(ProfilerIncompleteError, match="0 of 1 queues"):
        activities_by_range(sort_events(ranges(0, 10, 30, 60)), [True])


def profiled_window(operation=ops.STEP, names=("fused",), ids=((1,),)):
    step = SimpleNamespace(appends=[SimpleNamespace(block_ids=ids)])
    empty = partial(TableDriver.may_be_empty, None)
    driver = SimpleNamespace(may_be_empty=empty)
    arms = [SimpleNamespace(name=name, driver=driver) for name in names]
    return SimpleNamespace(operation=operation, names=list(names), steps=[step], instances=[arms])


def test_lost_ranges_and_lost_records_are_noticed():
    with pytest.raises(ProfilerIncompleteError, match="1 of 2 ranges"):
        activities_by_range(sort_events(ranges(0, 0, 5, 9)), [False, False])
    whole = [[DeviceActivity("kernel", "a", 0, 5)]]
    mixed = census_of(profiled_window(), "fused", [whole, [[]]])
    assert mixed.startswith("step 0 of fused: one")
    nothing = census_of(profiled_window(), "fused", [[[]], [[]]])
    assert nothing == "step 0 of fused: no device operation was recorded"


def test_applying_nothing_may_launch_nothing():
    window = profiled_window(ops.APPLY, ids=((),))
    assert census_of(window, "fused", [[[]]]).totals() == [0]
    assert times_ns([])[Quantity.GPU_US] == 0


def test_busy_time_is_that_of_the_union_and_gaps_are_the_rest_of_the_span():
    activities = [
        DeviceActivity("kernel", "a", 0, 10),
        DeviceActivity("kernel", "b", 4, 3),
        DeviceActivity("kernel", "c", 8, 7),
        DeviceActivity("kernel", "d", 20, 5),
    ]
    assert times_ns(activities) == {
        Quantity.GPU_US: 20,
        Quantity.SPAN_US: 25,
        Quantity.GAP_US: 5,
        Quantity.LAST_US: 5,
    }


def test_a_busy_device_is_profiled_only_if_the_plan_says_so():
    assert settings_of(Plan(loads=[Load.IDLE])) == [IDLE]
    both = settings_of(Plan(l2=[Cache.COLD, Cache.HOT]))
    assert [(setting.load, setting.l2) for setting in both] == [
        (Load.IDLE, Cache.HOT),
        (Load.BUSY, Cache.COLD),
        (Load.BUSY, Cache.HOT),
    ]


AROUND = Surroundings(ScriptedClock(), NoTelemetry(), SimpleNamespace(loads=0))
KERNEL = [[DeviceActivity("kernel", "a", 0, 5_000)]]


def profile(monkeypatch, session, **plan):
    """What is found where a session of the profiler gives `session(setting, names)`."""
    window = profiled_window(names=("bad", "good"))
    attempts = []

    def scripted(todo, _device, queue_us):
        loads = dict.fromkeys(setting.load for _, setting, _ in todo)
        attempts.extend((load, queue_us) for load in loads)
        return [session(setting, sorted(arm.name for arm in t.arms)) for _, setting, t in todo]

    monkeypatch.setattr(cupti_census, "_session", scripted)
    records = Records(window.names, AROUND)
    plan = Plan(**({"profile_rounds": 2, "l2": [Cache.HOT]} | plan))
    return profile_window(window, plan, AROUND.clock, None, records), records, attempts


def loads_of(records, name):
    return {m.load for m in records.books[name].measurements()}


def test_the_profiler_is_tried_again_and_then_given_up(monkeypatch):
    """Only the variant whose records are wrong loses its launches and device time."""

    def session(_setting, names):
        return {name: [[]] if name == "bad" else KERNEL for name in names}, frozenset()

    censuses, records, attempts = profile(monkeypatch, session, loads=[Load.IDLE])
    assert len(attempts) == cupti_census.ATTEMPTS
    assert isinstance(censuses["bad"], str)
    assert isinstance(censuses["good"], LaunchCensus)
    assert records.books["bad"].measurements() == []
    gpu = next(m for m in records.books["good"].measurements() if m.quantity is Quantity.GPU_US)
    assert (gpu.samples, gpu.rounds) == ([[5.0], [5.0]], [0, 1])


def test_a_call_that_outlasts_every_queue_loses_its_busy_times_only(monkeypatch):
    def session(setting, names):
        late = {"bad"} if setting.load is Load.BUSY else ()
        return dict.fromkeys(names, KERNEL), frozenset(late)

    censuses, records, attempts = profile(monkeypatch, session)
    assert all(isinstance(census, LaunchCensus) for census in censuses.values())
    assert loads_of(records, "good") == {Load.IDLE, Load.BUSY}
    assert loads_of(records, "bad") == {Load.IDLE}
    assert "before the queue" in records.notes["bad"][0]
    assert records.notes["good"] == []
    queues = [queue_us for load, queue_us in attempts if load is Load.BUSY]
    assert queues == [cupti_census.QUEUE_US * factor for factor in (1, 2, 4)]


def test_other_launches_on_a_busy_device_are_noticed(monkeypatch):
    def session(setting, names):
        twice = [[*KERNEL[0], DeviceActivity("kernel", "a", 9_000, 5)]]
        busy_bad = twice if setting.load is Load.BUSY else KERNEL
        return {name: busy_bad if name == "bad" else KERNEL for name in names}, frozenset()

    _censuses, records, _attempts = profile(monkeypatch, session)
    assert loads_of(records, "bad") == {Load.IDLE}
    assert "other launches" in records.notes["bad"][0]


def test_a_session_without_records_on_a_busy_device_leaves_the_idle_times(monkeypatch):
    def session(setting, names):
        if setting.load is Load.BUSY:
            raise ProfilerIncompleteError("3 of 4 queues were recorded")
        return dict.fromkeys(names, KERNEL), frozenset()

    censuses, records, _attempts = profile(monkeypatch, session)
    assert isinstance(censuses["good"], LaunchCensus)
    for name in ("good", "bad"):
        assert loads_of(records, name) == {Load.IDLE}
        assert "3 of 4 queues" in records.notes[name][0]


def profile_two_windows(monkeypatch, session, steps_per_session):
    """Both windows together, where `session(sizes)` may raise; sizes of the sessions come back."""
    windows = [profiled_window(names=("a", "b")), profiled_window(names=("a",))]
    sessions = []

    def scripted(todo, _device, _queue_us):
        sessions.append([windows.index(window) for window, _, _ in todo])
        return session(todo)

    monkeypatch.setattr(cupti_census, "_session", scripted)
    monkeypatch.setattr(cupti_census, "STEPS_PER_SESSION", steps_per_session)
    both = [(window, Records(window.names, AROUND)) for window in windows]
    plan = Plan(profile_rounds=3, loads=[Load.IDLE])
    cupti_census.profile_together(both, plan, AROUND.clock, None)
    return sessions, [records for _, records in both]


def gpu_samples(records, name):
    for measurement in records.books[name].measurements():
        if measurement.quantity is Quantity.GPU_US:
            return measurement.samples
    return None


def all_kernels(todo):
    return [({arm.name: KERNEL for arm in turn.arms}, frozenset()) for _, _, turn in todo]


def test_windows_are_profiled_together_in_as_few_sessions_as_hold_them(monkeypatch):
    sessions, records = profile_two_windows(monkeypatch, all_kernels, 100)
    assert sessions == [[0, 1, 0, 1, 0, 1]]
    assert gpu_samples(records[0], "b") == gpu_samples(records[1], "a") == [[5.0]] * 3
    sessions, records = profile_two_windows(monkeypatch, all_kernels, 3)
    assert sessions == [[0, 1]] * 3
    assert gpu_samples(records[0], "a") == [[5.0]] * 3


def test_a_window_whose_records_are_not_whole_gets_sessions_of_its_own(monkeypatch):
    calls = []

    def session(todo):
        calls.append(todo)
        taken = all_kernels(todo)
        if len(calls) == 1:
            taken[0][0]["b"] = [[]]  # the records of one pass of one arm were dropped
        return taken

    sessions, records = profile_two_windows(monkeypatch, session, 100)
    assert sessions == [[0, 1, 0, 1, 0, 1], [0, 0, 0]]
    assert gpu_samples(records[0], "b") == gpu_samples(records[1], "a") == [[5.0]] * 3


def test_all_windows_get_sessions_of_their_own_where_ranges_are_lost(monkeypatch):
    def session(todo):
        if len({id(window) for window, _, _ in todo}) > 1:
            raise ProfilerIncompleteError("1 of 9 ranges were recorded")
        return all_kernels(todo)

    sessions, records = profile_two_windows(monkeypatch, session, 100)
    assert sessions == [[0, 1, 0, 1, 0, 1], [0, 0, 0], [1, 1, 1]]
    assert gpu_samples(records[0], "b") == gpu_samples(records[1], "a") == [[5.0]] * 3
