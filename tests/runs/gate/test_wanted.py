"""Which metrics a gate takes, and the brief plan that takes them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bt_bench.base.errors import UsageError
from bt_bench.results.run.metrics import metric_named
from bt_bench.results.run.nouns import Cache, LaunchPath, Load
from bt_bench.results.run.plan import Plan
from bt_bench.runs.gate.sides import RoundsRequest
from bt_bench.runs.gate.wanted import choose_metrics, offered, round_plan
from bt_bench.suites.block_tables import operations as ops

STEP, STAGE = ops.STEP, ops.STAGE


def names(patterns, operations=(STEP,), device="cuda"):
    wanted = choose_metrics(patterns, operations, device)
    return {operation: [metric.name for metric in found] for operation, found in wanted.items()}


def test_defaults_are_host_and_device_time_and_staging_is_its_own():
    assert names((), (STEP, STAGE)) == {STEP: ["host_us", "gpu_us"], STAGE: ["stage_us"]}
    # Without a GPU nothing but staging can be timed, but launches can be counted.
    assert names((), (STEP, STAGE), "cpu") == {STEP: ["launches"], STAGE: ["stage_us", "launches"]}


def test_patterns_choose_among_all_that_can_be_taken():
    assert names(["gpu_us*"]) == {
        STEP: ["gpu_us", "gpu_us/busy", "gpu_us/busy/cold", "gpu_us/graph"]
    }
    paths = ["host_us", "host_us/compiled", "host_us/direct", "host_us/graph"]
    assert [name for name in names(["host_us*"])[STEP] if "busy" not in name] == paths
    assert names(["stage_us"], (STEP, STAGE)) == {STEP: ["stage_us"], STAGE: ["stage_us"]}
    with pytest.raises(UsageError, match="--metric gpu: no such metric"):
        choose_metrics(["gpu"], (STEP,), "cuda")
    with pytest.raises(UsageError, match="--metric gpu_us: no such metric"):
        choose_metrics(["gpu_us"], (STAGE,), "cpu")
    with pytest.raises(UsageError, match=r"--metric host_us\+stage_us: .* takes no sums"):
        choose_metrics(["stage_us+host_us"], (STEP,), "cuda")


@pytest.mark.parametrize("operation", list(ops.OPERATIONS))
def test_names_lead_back_to_their_series(operation):
    """A recording has names only."""
    for device in ("cuda", "cpu"):
        for metric in offered(operation, device):
            assert metric_named(metric.name) == metric


def test_a_round_is_brief_and_has_the_conditions_that_are_wanted():
    wanted = [metric_named("event_us/busy/cold").series, metric_named("host_us/compiled").series]
    plan = round_plan(Plan(instances=1), wanted, 7)
    assert plan.launch_paths == [LaunchPath.JIT, LaunchPath.COMPILED]
    assert plan.loads == [Load.IDLE, Load.BUSY]
    assert plan.l2 == [Cache.HOT, Cache.COLD]
    assert (plan.rounds, plan.instances, plan.seed, plan.control) == (150, 1, 7, False)
    assert Plan.model_validate(plan.model_dump()) == plan
    assert round_plan(Plan(rounds=5), [], 0).loads == [Load.IDLE]
    assert round_plan(Plan(rounds=5), [], 0).rounds == 5


def test_what_is_profiled_needs_a_plan_that_profiles():
    def request(metrics, plan):
        spec = SimpleNamespace(plan=plan)
        return RoundsRequest(spec, {}, choose_metrics(metrics, (STEP,), "cuda"), "cuda", None)

    unprofiled = Plan(profile_rounds=0)
    for metrics in ([], ["span_us/busy"]):
        request(metrics, Plan())
        with pytest.raises(UsageError, match=r"plan.profile_rounds is 0, so \w+_us"):
            request(metrics, unprofiled)
    request(["host_us", "gpu_us/graph"], unprofiled)
