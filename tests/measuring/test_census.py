"""Counting launches: under the interpreter, and from a profiler's records."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch._C._autograd import DeviceType
from variants import SHIPPED, classes

from bt_bench.arms import Arm, inputs_on
from bt_bench.measuring import case as case_module
from bt_bench.measuring.case import CpuBench, measure_case
from bt_bench.measuring.cupti_census import (
    RANGE,
    Activity,
    ProfilerIncompleteError,
    _activities_by_range,
    _busy_ns,
    _summarize,
)
from bt_bench.measuring.interpreter_census import count_launches
from bt_bench.model import Operation, Plan, Quantity, Status
from bt_bench.workloads.build import build_workload
from bt_bench.workloads.parameters import UniformParameters


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
}


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("name", SHIPPED)
def test_launches_of_a_step_under_the_interpreter(name, groups):
    work = workload(groups)
    arm = Arm(name, classes([name])[name], work, torch.device("cpu"))
    steps = inputs_on(torch.device("cpu"), work)
    census = count_launches(arm, steps, Operation.STEP)
    assert census.totals() == [LAUNCHES[name](groups)]
    assert {launch.kind for launch in census.steps[0]} == {"kernel"}


@pytest.mark.gpu
@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_launches_of_a_step_on_the_gpu(groups, device):
    """Counted by CUPTI: `fused` makes 2 launches for every G, `baseline` G + 2."""
    results = measure_case(
        "case",
        classes(SHIPPED),
        workload(groups),
        Operation.STEP,
        Plan(rounds=1, warmup_rounds=1, instances=1, profile_rounds=2),
        case_module.CudaBench(),
        lambda done: None,
    )
    for name, measured in results.items():
        assert measured.reason is None
        assert measured.launches.counted_by == "cupti"
        assert measured.launches.totals() == [LAUNCHES[name](groups)], name
        assert {launch.kind for launch in measured.launches.steps[0]} == {"kernel"}
        found = {m.quantity for m in measured.measurements}
        assert found == {
            Quantity.STAGE_US,
            Quantity.HOST_US,
            Quantity.STEP_US,
            Quantity.EVENT_US,
            Quantity.GPU_US,
        }


def test_nothing_staged_is_no_launch():
    work = workload(2, staged_writes=0)
    arm = Arm("fused", classes(["fused"])["fused"], work, torch.device("cpu"))
    steps = inputs_on(torch.device("cpu"), work)
    assert count_launches(arm, steps, Operation.APPLY).totals() == [0]
    assert count_launches(arm, steps, Operation.STEP).totals() == [1]


def test_torch_operations_are_counted_and_views_are_not():
    fused = classes(["fused"])["fused"]

    class Copying(fused):
        def apply_staged_writes(self):
            self.slot_mappings[:, 1:].fill_(3)
            self.slot_mappings.copy_(self.slot_mappings.clone())
            super().apply_staged_writes()

    work = workload(1)
    arm = Arm("copying", Copying, work, torch.device("cpu"))
    census = count_launches(arm, inputs_on(torch.device("cpu"), work), Operation.APPLY)
    assert {(launch.kind, launch.name, launch.count) for launch in census.steps[0]} == {
        ("kernel", "apply_writes_kernel", 1),
        ("torch_op", "fill_", 1),
        ("torch_op", "copy_", 1),
        ("torch_op", "clone", 1),
    }


def test_cpu_bench_measures_staging_only():
    plan = Plan(rounds=2, warmup_rounds=0, instances=2)
    results = measure_case(
        "case",
        classes(["fused"]),
        workload(1),
        Operation.STEP,
        plan,
        CpuBench(),
        lambda done: None,
    )
    (measurement,) = results["fused"].measurements
    assert measurement.quantity is Quantity.STAGE_US
    assert len(measurement.samples) == 2


@dataclass
class Event:
    """A record as torch's profiler gives it."""

    label: str
    on_device: bool
    start: int
    duration: int

    def name(self):
        return self.label

    def device_type(self):
        return DeviceType.CUDA if self.on_device else DeviceType.CPU

    def start_ns(self):
        return self.start

    def duration_ns(self):
        return self.duration


def profiler(*events):
    results = SimpleNamespace(events=lambda: events)
    return SimpleNamespace(profiler=SimpleNamespace(kineto_results=results))


def test_activities_go_to_the_range_that_they_lie_in():
    by_range = _activities_by_range(
        profiler(
            Event("restore", True, 5, 2),
            Event(f"{RANGE}1", False, 100, 50),
            Event(f"{RANGE}0", False, 10, 50),
            Event(f"{RANGE}0", True, 12, 30),  # the range's shadow on the device
            Event("Memcpy HtoD", True, 40, 5),
            Event("gather", True, 20, 9),
            Event("between", True, 70, 9),
            Event("Memset", True, 120, 5),
            Event("cudaLaunchKernel", False, 15, 1),
        ),
        2,
    )
    assert [[(a.kind, a.name) for a in activities] for activities in by_range] == [
        [("kernel", "gather"), ("copy", "Memcpy HtoD")],
        [("memset", "Memset")],
    ]


def test_lost_ranges_and_lost_records_are_noticed():
    with pytest.raises(ProfilerIncompleteError, match="1 of 2 ranges"):
        _activities_by_range(profiler(Event(f"{RANGE}0", False, 0, 9)), 2)
    whole = [[Activity("kernel", "a", 0, 5)]]
    with pytest.raises(ProfilerIncompleteError, match="step 0 of fused"):
        _summarize("fused", [whole, [[]]])


def test_busy_time_is_that_of_the_union():
    activities = [
        Activity("kernel", "a", 0, 10),
        Activity("kernel", "b", 4, 3),
        Activity("kernel", "c", 8, 7),
        Activity("kernel", "d", 20, 5),
    ]
    assert _busy_ns(activities) == 20


def test_the_profiler_is_tried_again_and_then_given_up(monkeypatch):
    bench = case_module.CudaBench.__new__(case_module.CudaBench)
    window = SimpleNamespace(operation=Operation.STEP, names=["a"])
    attempts = []

    def fails(*_arguments):
        attempts.append(1)
        raise ProfilerIncompleteError("dropped")

    monkeypatch.setattr(case_module, "profile_window", fails)
    measured = bench.census(window, Plan())["a"]
    assert len(attempts) == case_module.PROFILER_ATTEMPTS
    assert measured.launches is None
    assert measured.reason.code == "profiler_incomplete"
    assert Status.OK == "ok"
