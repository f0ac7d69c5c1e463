"""What is timed is checked: at random moments, in every way that times it, on other contents."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
import torch
from support.scripted import ScriptedClock, ScriptedDevice
from support.variants import classes

from bt_bench.protocol import build_workload
from bt_bench.results.run.nouns import LaunchPath
from bt_bench.results.run.plan import Plan
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.inputs import inputs_on
from bt_bench.suites.block_tables.workloads import UniformParameters
from bt_bench.worker.measuring import spot_checks
from bt_bench.worker.measuring.bench import CpuBench, cuda_probes
from bt_bench.worker.measuring.case import build_instances, measure_case
from bt_bench.worker.measuring.probes import Keeping, StageProbe
from bt_bench.worker.measuring.rounds import ReplayWindow
from bt_bench.worker.measuring.spot_checks import PLAINLY, SpotChecks, way_of

CPU = torch.device("cpu")
SIZES = {"max_num_reqs": 4, "max_num_batched_tokens": 8, "max_model_len": 64}
WORKLOAD = build_workload(
    UniformParameters(groups=1, requests=2, tokens=4, staged_writes=2, **SIZES)
)
Fused = classes(["fused"])["fused"]


class Cheating(Fused):
    """Does nothing when `is_timed` says so."""

    def is_timed(self):
        return False

    def prepare_step(self, idx_mapping, query_start_loc, positions, reqs, tokens):
        if self.is_timed():
            self.apply_staged_writes()
            return tuple(t[:reqs] for t in self.input_block_tables), self.slot_mappings[:, :tokens]
        return super().prepare_step(idx_mapping, query_start_loc, positions, reqs, tokens)


class WithoutCollection(Cheating):
    def is_timed(self):
        return not gc.isenabled()


class BelowTheClock(Cheating):
    def is_timed(self):
        return sys._getframe(2).f_code.co_name in ("host_times", "between_events")


class Often(Cheating):
    calls = 0

    def is_timed(self):
        self.calls += 1
        return self.calls > 3


class InARow(Fused):
    """Does the work of the first of several calls in a row."""

    staged = True

    def append_many(self, *arguments):
        self.staged = True
        super().append_many(*arguments)

    def gather_and_compute_slot_mappings(self, *batch):
        before, self.staged = self.staged, False
        if before:
            return super().gather_and_compute_slot_mappings(*batch)
        reqs, tokens = batch[3:]
        return tuple(t[:reqs] for t in self.input_block_tables), self.slot_mappings[:, :tokens]


class Remembering(Fused):
    """Puts back the results that the same tensors had before."""

    def prepare_step(self, idx_mapping, query_start_loc, positions, reqs, tokens):
        known = self.__dict__.setdefault("known", {})
        key = idx_mapping.data_ptr(), reqs, tokens
        results = super().prepare_step(idx_mapping, query_start_loc, positions, reqs, tokens)
        for view, old in zip((*results[0], results[1]), known.get(key, ()), strict=False):
            view.copy_(old)
        known.setdefault(key, [view.clone() for view in (*results[0], results[1])])
        return results


def checks_of(variants, instances=1, operation=ops.STEP):
    plan = Plan(instances=instances, rounds=2 * instances)
    copies = {name: (variant,) for name, variant in variants.items()}
    built = build_instances(copies, WORKLOAD, plan, CPU)
    window = ReplayWindow("case", built, inputs_on(CPU, WORKLOAD), operation)
    return SpotChecks(window, WORKLOAD, CPU, ScriptedClock())


@pytest.fixture
def ways():
    """Those of a GPU, on a device and a clock that are scripted: calls run on the CPU."""
    clock = ScriptedClock()
    paths = (LaunchPath.JIT,)
    probes = cuda_probes(Plan(launch_paths=paths), clock, ScriptedDevice(clock))
    return [way_of(probe, ops.STEP) for probe in probes]


def test_right_variants_are_right_in_every_way(ways):
    checks = checks_of(classes(["baseline", "fused", "one_launch"]), instances=2)
    checks.all(ways, [PLAINLY])
    assert checks.failed == {}


def test_ways_are_named_by_what_they_time(ways):
    names = [way.name for way in ways]
    assert names[0] == "host_us, step_us, stage_us on jit"
    assert {"event_us on jit", "pipelined_us on jit"} <= set(names)


@pytest.mark.parametrize("way", ["host_us", "event_us"])
def test_to_the_call_nothing_differs_from_a_sample(way, ways):
    (chosen,) = [each for each in ways if each.name.startswith(way)][:1]
    checks = checks_of({"fused": Fused, "cheat": BelowTheClock})
    checks.all([chosen], [])
    assert list(checks.failed) == ["cheat"]
    assert checks.failed["cheat"].message.startswith(f"after timing (as for {way}")


def test_a_call_that_is_repeated_has_to_do_its_work_again(ways):
    (pipelined,) = [each for each in ways if each.name.startswith("pipelined_us")]
    (first,) = [each for each in ways if each.name.startswith("event_us")][:1]
    for way, failed in ((pipelined, ["cheat"]), (first, [])):
        checks = checks_of({"fused": Fused, "cheat": InARow}, operation=ops.GATHER_SLOTS)
        checks.all([way], [])
        assert list(checks.failed) == failed


@pytest.mark.parametrize("cheat", [WithoutCollection, Often, Remembering])
def test_a_cheat_has_no_times(cheat, monkeypatch):
    monkeypatch.setattr(spot_checks, "CHANCE", 1.0)
    monkeypatch.setattr(spot_checks, "SHARE_OF_TIME", 1e9)
    results = measure_case(
        "case",
        {"cheat": cheat, "fused": Fused},
        WORKLOAD,
        ops.STEP,
        Plan(rounds=6, min_rounds=6, warmup_rounds=2, instances=1, control=False),
        CpuBench(),
        lambda progress: None,
    )
    assert results["cheat"].reason.code == "wrong_result"
    assert "(as for stage_us on jit), step 0" in results["cheat"].reason.message
    assert results["cheat"].measurements == []
    assert results["fused"].reason is None
    assert results["fused"].measurements


class StagesBelowNoClock(Fused):
    """Stages nothing while staging is timed."""

    def append_many(self, *arguments):
        if sys._getframe(1).f_code.co_name != "host_times":
            super().append_many(*arguments)


@pytest.mark.parametrize("operation", [ops.STAGE, ops.STEP])
def test_staging_is_checked_as_it_is_timed(operation):
    checks = checks_of({"fused": Fused, "cheat": StagesBelowNoClock}, operation=operation)
    checks.all([way_of(StageProbe(ScriptedClock()), operation)], [])
    assert list(checks.failed) == ["cheat"]


def test_what_a_call_returns_is_kept_whatever_it_is():
    for result in (np.zeros(3), None, torch.zeros(2), ()):
        kept = Keeping(lambda result=result: result)
        kept.call()
        assert kept.result is result


def test_there_is_a_check_among_the_rounds_even_by_bad_luck(monkeypatch):
    monkeypatch.setattr(spot_checks, "CHANCE", 0.0)
    checks = checks_of({"fused": Fused})
    arms = checks._window.instances[0]
    assert not checks.perhaps(arms, [PLAINLY], 1.0)
    assert checks.perhaps(arms, [PLAINLY], 1.0, at_last=True)
    assert not checks.perhaps(arms, [PLAINLY], 1.0, at_last=True)


def test_after_the_rounds_nothing_is_collected_either(monkeypatch):
    monkeypatch.setattr(SpotChecks, "perhaps", lambda *_arguments, **_options: False)
    results = measure_case(
        "case",
        {"cheat": WithoutCollection},
        WORKLOAD,
        ops.STEP,
        Plan(rounds=2, warmup_rounds=0, instances=1, control=False),
        CpuBench(),
        lambda progress: None,
    )
    assert results["cheat"].reason.message.startswith("after timing")


def test_without_other_contents_what_is_remembered_looks_right(monkeypatch):
    """The defence taken out."""
    monkeypatch.setattr(
        "bt_bench.suites.block_tables.driver.TableDriver.with_other_contents",
        classmethod(lambda *_: None),
    )
    checks = checks_of({"cheat": Remembering})
    checks.all([PLAINLY], [])
    assert checks.failed == {}


def test_moments_are_random_and_take_a_share_of_the_time():
    checks = checks_of({"fused": Fused})
    arms = checks._window.instances[0]
    told = [checks.perhaps(arms, [PLAINLY], seconds=1e9) for _ in range(40)]
    assert 1 <= sum(told) < 40  # 40 of 40, or none, has a chance of 2e-4
    assert checks.done == sum(told)
    checks._spent_s = 0.2
    assert not any(checks.perhaps(arms, [PLAINLY], seconds=1.0) for _ in range(40))
