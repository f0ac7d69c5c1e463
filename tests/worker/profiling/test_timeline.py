"""The passes of a timeline on the CPU, with a scripted clock, device and profiler."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from support.scripted import ScriptedClock

from bt_bench.config import CaseSpec
from bt_bench.protocol import build_workload
from bt_bench.results import Plan, ReasonCode, Tracing
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import TraceParameters, Window
from bt_bench.worker.measuring.bench import CpuBench
from bt_bench.worker.profiling import timeline
from bt_bench.worker.profiling.records import ApiRecord, DeviceRecord, PassRecords
from bt_bench.worker.profiling.timeline import take_timeline
from bt_bench.worker.tasks.failures import ArmFailedError
from bt_bench.worker.tasks.tasks import TakeTimeline

EPOCH_NS = 1_700_000_000_000_000_000
STEP = 1  # of the window's steps, from 0; there are more
TURNS = 3
STEPS = TURNS * 4  # of a variant, traced and not traced each, with two pairs of rounds in a turn
NONE, ALL = Tracing
HEAVY_NS = 2_000  # what recording a call adds


class Machine:
    """A device, and the profiler that sees what is done with it."""

    source = "a profiler 1.0"
    missing = ("what it does not tell",)

    def __init__(self):
        self.clock = ScriptedClock()
        self.log = []
        self.passes = []
        self.loses = []  # how many records the next passes lose
        self._now = self._last = Tracing.NONE
        self._taken = PassRecords()
        self._correlation = 0

    def now_ns(self):
        return EPOCH_NS + self.clock.ns

    @contextmanager
    def recording(self):
        self._now = Tracing.ALL
        yield
        self._now = Tracing.NONE

    def dropped(self):
        is_traced = self._last is Tracing.ALL
        self.passes.append(self._last)
        return self.loses.pop(0) if self.loses and is_traced else 0

    def taken(self):
        return self._taken

    def call(self, name, length_ns=1_000):
        """A call of CUDA, which takes longer while it is recorded."""
        start = self.now_ns()
        self.clock.ns += length_ns
        self._correlation += 1
        self._last = self._now
        if self._now is Tracing.ALL:
            self.clock.ns += HEAVY_NS
            api = "runtime" if name.startswith("cuda") else "driver"
            record = ApiRecord(api, name, self._correlation, start, self.now_ns())
            self._taken.calls.append(record)

    def launch(self, name):
        self.call("cuLaunchKernelEx")
        if self._now is Tracing.ALL:
            start = self.now_ns() + 100
            self._taken.operations.append(
                DeviceRecord("kernel", name, self._correlation, start, start + 300)
            )

    def synchronize(self):
        self.call("cudaDeviceSynchronize", 500)

    def record_start(self):
        self.log.append("record")

    def start_has_passed(self):
        assert "record" in self.log
        self.call("cudaEventQuery", 100)
        return True


@pytest.fixture
def machine(monkeypatch, tell_ranges):
    """A machine, in place of the real one."""
    made = Machine()
    monkeypatch.setattr(timeline, "direct_null", lambda: lambda: made.launch("null"))
    monkeypatch.setattr(timeline, "time", SimpleNamespace(time_ns=made.now_ns))
    monkeypatch.setattr(timeline, "MOST_STEPS", STEPS)
    monkeypatch.setattr(timeline, "PAIRS", 2)
    tell_ranges(made.log.append)
    return made


def launches(machine, *names, fails_in=None):
    """A variant whose step launches kernels of these names."""
    from bt_kernels.fusions import FusedGatherSlots

    class Variant(FusedGatherSlots):
        def prepare_step(self, *given):
            machine.log.append(f"{names[0]} called")
            for name in names:
                machine.launch(name)
            if machine._now is fails_in:
                raise ValueError("a broken step")

    return Variant


def taken(machine, on_round=lambda progress: None, tracer_of=None, **variants):
    parameters = TraceParameters(
        workload="trace",
        trace="azure_code",
        max_num_reqs=4,
        max_num_batched_tokens=64,
        max_model_len=8192,
        window=Window(steps=STEP + 2),
    )
    task = TakeTimeline(CaseSpec(name="one", parameters=parameters), ops.STEP, STEP)
    return take_timeline(
        task,
        variants,
        build_workload(parameters),
        Plan(instances=2),
        CpuBench(machine.clock),
        on_round,
        port=machine,
        tracer_of=tracer_of or (lambda: machine),
    )


def two(machine):
    return {"mine": launches(machine, "mine_kernel"), "two": launches(machine, "a", "b")}


def test_each_variant_has_steps_for_all_kinds_of_tracing(machine):
    parts = taken(machine, **two(machine))
    assert (parts.source, parts.missing) == ("a profiler 1.0", ["what it does not tell"])
    assert not parts.failed
    kernels = {"mine": ["mine_kernel"], "two": ["a", "b"]}
    assert set(parts.steps) == set(kernels)
    for name, steps in parts.steps.items():
        assert [each.tracing for each in steps] == list(Tracing)
        for each in steps:
            assert len(each.host_us) == STEPS
            assert each.left_out == 0
            heavy = HEAVY_NS / 1e3 if each.tracing is Tracing.ALL else 0
            count = len(kernels[name])
            assert set(each.host_us) == {count * (1.0 + heavy)}
            assert set(each.step_us) == {count * (1.0 + heavy) + 0.5 + heavy}
            recorded = each.tracing is Tracing.ALL
            assert [one.name for one in each.operations] == (kernels[name] if recorded else [])
        *_, full = steps
        assert [(call.name, call.operation) for call in full.calls] == [
            *[("cuLaunchKernelEx", place) for place in range(count)],
            ("cudaDeviceSynchronize", None),
        ]
        assert set(full.calls[0].start_us) == {0.0}


def test_empty_calls_are_taken_in_the_same_passes(machine):
    parts = taken(machine, **two(machine))
    found = {(empty.name, empty.tracing): empty for empty in parts.empty}
    assert set(found) == {(name, tracing) for name in ("launch", "query") for tracing in Tracing}
    for (name, tracing), empty in found.items():
        assert len(empty.host_us) == STEPS
        calls = timeline.QUERIES if name == "query" else 1
        heavy = HEAVY_NS / 1e3 if tracing is Tracing.ALL else 0
        expected = calls * ((0.1 if name == "query" else 1.0) + heavy)
        assert empty.host_us == pytest.approx([expected] * len(empty.host_us))
        # The wait behind them is not one of them.
        assert empty.records == (calls if tracing is Tracing.ALL else 1)


def test_passes_take_turns_once_the_profiler_is_loaded(machine):
    loaded = []

    def load():
        loaded.append(len(machine.log))
        assert not machine.passes
        return machine

    parts = taken(machine, tracer_of=load, **two(machine))
    assert len(loaded) == 1
    assert machine.passes == [NONE, ALL, NONE] * TURNS
    assert parts.seconds > 0


def test_there_are_no_more_passes_once_the_time_is_up(machine, monkeypatch):
    monkeypatch.setattr(timeline, "SECONDS", 0.0)
    monkeypatch.setattr(timeline, "MOST_STEPS", 10 * STEPS)
    parts = taken(machine, **two(machine))
    assert timeline.LEAST_TURNS > 3  # or nothing is known of how they scatter
    assert machine.passes == [NONE, ALL, NONE] * timeline.LEAST_TURNS
    assert len(parts.steps["mine"][-1].host_us) == 4 * timeline.LEAST_TURNS


def test_the_last_step_alone_is_timed_and_has_the_range(machine):
    parts = taken(machine, mine=launches(machine, "mine_kernel"))
    assert parts.ranges == {"mine": "mine.step.one"}
    text = " ".join(machine.log)
    timed = f"<mine:{STEP} <mine.step.one:{STEP} mine_kernel called > >"
    # Making the tracer attaches it, too.
    rounds = timeline.WARM_UP_ROUNDS + 2 * STEPS + timeline.CHANGED_ROUNDS * (2 * TURNS + 1)
    # Before each of them the earlier step is run outside of any range.
    assert text.count(f"mine_kernel called {timed}") == rounds
    assert text.count("<") == text.count(">") == 2 * rounds


def test_the_host_profile_is_of_the_same_step(machine):
    parts = taken(machine, **two(machine))
    assert set(parts.host) == {"mine", "two"}
    for profile in parts.host.values():
        (root,) = profile.frames
        assert root.name.endswith("prepare_step")
        assert root.calls == 1


@pytest.mark.parametrize("lost", [[5], [5, 1]])
def test_a_pass_is_taken_again_if_records_were_lost(machine, lost):
    machine.loses = list(lost)
    parts = taken(machine, **two(machine))
    assert not parts.failed
    assert machine.passes.count(Tracing.ALL) == TURNS + len(lost)
    assert machine.passes.count(Tracing.NONE) == 2 * TURNS
    *_, full = parts.steps["mine"]
    assert len(full.host_us) == STEPS
    # Each attempt attaches the profiler anew.
    rounds = timeline.WARM_UP_ROUNDS + 2 * STEPS + timeline.CHANGED_ROUNDS * (2 * TURNS + 1)
    again = len(lost) * (STEPS // TURNS + timeline.CHANGED_ROUNDS)
    assert machine.log.count(f"<mine.step.one:{STEP}") == rounds + again


def test_after_three_attempts_the_reason_is_kept(machine):
    machine.loses = [5, 4, 3]
    parts = taken(machine, **two(machine))
    assert machine.passes.count(Tracing.ALL) == TURNS + 2
    for name in ("mine", "two"):
        reason = parts.failed[name]
        assert reason.code is ReasonCode.PROFILER_INCOMPLETE
        assert reason.message == "all: the profiler lost 3 records"
        kept = [each.tracing for each in parts.steps[name]]
        assert kept == [Tracing.NONE]
    assert Tracing.ALL not in {empty.tracing for empty in parts.empty}


def test_a_variant_whose_steps_differ_fails_alone(machine):
    class Changing(launches(machine, "other")):
        count = 0

        def prepare_step(self, *given):
            type(self).count += 1
            machine.launch(f"kernel {self.count}")

    parts = taken(machine, mine=launches(machine, "mine_kernel"), changing=Changing)
    assert list(parts.failed) == ["changing"]
    assert "different sequences" in parts.failed["changing"].message
    assert len(parts.steps["mine"]) == len(Tracing)


def test_a_variant_that_raises_is_named_and_its_ranges_are_closed(machine):
    broken = launches(machine, "broken_kernel", fails_in=Tracing.ALL)
    with pytest.raises(ArmFailedError) as failed:
        taken(machine, mine=launches(machine, "mine_kernel"), broken=broken)
    assert failed.value.arm == "broken"
    text = " ".join(machine.log)
    assert text.count("<") == text.count(">")


def test_progress_is_told_before_each_part(machine):
    told = []
    taken(machine, told.append, mine=launches(machine, "mine_kernel"))
    assert [each.done for each in told] == list(range(TURNS))
    assert {(each.rounds, each.what) for each in told} == {(TURNS, "tracing steps")}
