"""A step in one launch is one device operation, in every step of every case of the stock configs.

Under the interpreter the launches are counted and the kernels are not run, which would take long.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import pytest
import torch
from support.not_run import run_no_kernels
from support.variants import classes

from bt_bench.config.load import load_config
from bt_bench.protocol import build_workload
from bt_bench.results.run.nouns import Cache, LaunchPath, Load
from bt_bench.results.run.plan import Plan
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.calls import stage
from bt_bench.suites.block_tables.inputs import inputs_on
from bt_bench.worker.measuring.bench import CudaBench
from bt_bench.worker.measuring.launch_paths import supports, use
from bt_bench.worker.measuring.methods import profiler as cupti_census
from bt_bench.worker.measuring.methods.interpreter import REPLAYS, count_case, count_launches
from bt_bench.worker.measuring.records import Records
from bt_bench.worker.measuring.rounds import ReplayWindow
from bt_bench.worker.tasks.arm import Arm

VARIANTS = ("one_launch", "one_launch_graph")
TRACES = ("azure_conv", "azure_code")
CONFIGS = ("origin", "features")
JIT, COMPILED, DIRECT, _ = LaunchPath


@cache
def workloads(config):
    """The workloads of a config by the names of its cases.

    Those of a trace are built by several processes: a window at its busiest takes a scheduler some
    seconds to get there.
    """
    cases = {case.name: case.parameters for case in load_config(config).cases}
    if config not in TRACES:
        return {name: build_workload(parameters) for name, parameters in cases.items()}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(8, os.cpu_count() or 1), context) as processes:
        return dict(zip(cases, processes.map(build_workload, cases.values()), strict=True))


def strays(census):
    """Of a census the steps that are not one kernel, with what they are."""
    found = {}
    for index, step in enumerate(census.steps):
        launches = {(launch.kind, launch.name): launch.count for launch in step}
        if sum(launches.values()) != 1 or {kind for kind, _ in launches} != {"kernel"}:
            found[index] = launches
    return found


@pytest.fixture
def kernels_not_run(monkeypatch):
    run_no_kernels(monkeypatch)


def counted(name, workload):
    cpu = torch.device("cpu")
    arm = Arm(name, classes([name])[name], workload, cpu)
    steps = inputs_on(cpu, workload)
    for _ in range(REPLAYS):
        census = count_launches(arm, steps, ops.STEP)
    assert len(census.steps) == len(workload.steps)
    return census


@pytest.mark.parametrize(
    "config", [*CONFIGS, *(pytest.param(name, marks=pytest.mark.slow) for name in TRACES)]
)
@pytest.mark.parametrize("name", VARIANTS)
def test_host_code_makes_one_launch_a_step(name, config, kernels_not_run):
    found = {case: strays(counted(name, work)) for case, work in workloads(config).items()}
    assert found == {case: {} for case in workloads(config)}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_step_that_stages_nothing_is_one_launch(name, kernels_not_run):
    for case in load_config("origin").cases:
        idle = case.parameters.model_copy(update={"staged_writes": 0})
        workload = build_workload(idle)
        assert workload.steps[0].appends == ()
        assert strays(counted(name, workload)) == {}


def test_a_second_launch_would_be_counted(kernels_not_run):
    workload = workloads("origin")["medium_batch_2grp"]
    assert [sum(launches.values()) for launches in strays(counted("fused", workload)).values()] == [
        2
    ]


def test_a_case_is_counted_once_its_arms_have_run_as_often_as_they_need(kernels_not_run):
    """What is made once, such as a buffer, is no launch of a step."""

    class Lazy(classes(["fused"])["fused"]):
        made = None

        def prepare_step(self, *arguments):
            if self.made is None:
                self.made = torch.ones(4)
            return super().prepare_step(*arguments)

    class More(Lazy):
        def prepare_step(self, *arguments):
            torch.ones(4)
            return super().prepare_step(*arguments)

    workload = workloads("origin")["medium_batch_2grp"]
    variants = {"fused": classes(["fused"])["fused"], "lazy": Lazy, "more": More}
    counts = count_case(variants, workload, (ops.STEP, ops.STAGE))
    totals = {key: set(census.totals()) for key, census in counts.items()}
    assert totals == {
        **{(name, ops.STEP): {2} for name in ("fused", "lazy")},
        ("more", ops.STEP): {3},
        **{(name, ops.STAGE): {0} for name in variants},
    }


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("config", "path"),
    [*((config, JIT) for config in (*CONFIGS, *TRACES)), ("origin", COMPILED), ("origin", DIRECT)],
)
def test_a_step_is_one_device_operation(config, path, device, monkeypatch):
    """Counted by CUPTI, which sees copies and memsets too."""
    monkeypatch.setattr(cupti_census, "use", lambda arm, _: use(arm, path))
    bench = CudaBench()
    plan = Plan(profile_rounds=2, loads=[Load.IDLE], l2=[Cache.HOT])
    variants = classes(VARIANTS)
    found = {}
    for case, workload in workloads(config).items():
        arms = [Arm(name, kind, workload, bench.device) for name, kind in variants.items()]
        arms = [arm for arm in arms if supports(arm, path, ops.STEP)]
        if not arms:
            pytest.skip(f"none of {', '.join(VARIANTS)} has the launch path {path} here")
        window = ReplayWindow(case, [arms], inputs_on(bench.device, workload), ops.STEP)
        for arm in arms:
            _replay(arm, window, path)
        censuses = bench.census(window, plan, Records(window.names, bench.around))
        for name, census in censuses.items():
            assert not isinstance(census, str), f"{case}: {census}"
            assert (census.counted_by, len(census.steps)) == ("cupti", len(workload.steps))
            found[case, name] = strays(census)
    assert found == {place: {} for place in found}
    assert len(found) >= len(workloads(config))


def _replay(arm, window, path):
    """Runs the window once, so that no kernel is compiled under the profiler."""
    use(arm, path)
    for step in window.steps:
        stage(arm.variant, step)
        arm.bind(window.operation, step)()
    torch.cuda.synchronize(window.steps[0].idx_mapping.device)


@pytest.mark.parametrize("name", ["baseline", "fused"])
def test_staging_of_full_rows_is_counted_once(name):
    """Rows have no room for the same blocks twice."""
    kind = load_config("quick").cases[0].parameters
    sizes = {"requests": 2, "tokens": 8, "max_num_reqs": 2, "max_model_len": 64, "groups": 1}
    workload = build_workload(kind.model_copy(update=sizes))
    device = torch.device("cpu")
    arm = Arm(name, classes([name])[name], workload, device)
    census = count_launches(arm, inputs_on(device, workload), ops.STAGE)
    assert census.totals() == [0]
