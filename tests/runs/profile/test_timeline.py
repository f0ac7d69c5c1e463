"""A step's timeline: what a worker is asked for, and what becomes of its answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from support.factories import make_environment, make_workload
from support.timelines import a_timeline, a_variant

from bt_bench.base.errors import UsageError
from bt_bench.config import CaseSpec
from bt_bench.protocol import build_workload, built_record
from bt_bench.results import CheckReport, HandlerCost, HostProfile, Reason, ReasonCode, Tracing
from bt_bench.runs.profile import TimelineRequest, take_step_timeline
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import TraceParameters, UniformParameters, Window
from bt_bench.worker import CheckCase, Hello, TakeTimeline, TimelineParts
from bt_bench.worker.tasks.outcome import RoundProgress
from bt_bench.worker.tasks.runner import Finished
from bt_bench.worker.tasks.tasks import Checked, CheckOutcome

STEPS = 3
CASE = CaseSpec(
    name="one",
    parameters=TraceParameters(
        workload="trace",
        trace="azure_code",
        max_num_reqs=4,
        max_num_batched_tokens=64,
        max_model_len=8192,
        window=Window(steps=STEPS),
    ),
)
HELLO = Hello("cuda", make_environment(), None)
COST = HandlerCost(within_us=0.1, around_us=0.1)
HOST = HostProfile(plain_us=9.0, repetitions=5, python_call=COST, c_call=COST)


def reason(message):
    return Reason(code=ReasonCode.RAISED, message=message)


@dataclass
class ScriptedRunner:
    """Passes every check and traces the same, but for what it is told; keeps what it was asked.

    Args:
        rejected: by arm, reasons of the check's verdicts.
        crashed: by type of task and arm, reasons of arms that are left out.
        incomplete: by arm, reasons for which what was traced cannot be right.
    """

    rejected: dict = field(default_factory=dict)
    crashed: dict = field(default_factory=dict)
    incomplete: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)

    def run(self, task, arms, watcher=None):
        self.asked.append((task, list(arms)))
        crashed = {arm: why for arm, why in self.crashed.get(type(task), {}).items() if arm in arms}
        left = [arm for arm in arms if arm not in crashed]
        if watcher is not None:
            watcher.round(RoundProgress(1, 2))
        if isinstance(task, CheckCase):
            outcomes = {
                (arm, operation): CheckOutcome(
                    None if arm in self.rejected else CheckReport(steps=1, buffers=["slots"]),
                    self.rejected.get(arm),
                )
                for arm in left
                for operation in task.operations
            }
            return Finished(Checked(make_workload(), outcomes), crashed)
        assert isinstance(task, TakeTimeline)
        parts = TimelineParts(
            "a profiler 1.0",
            ["what it does not tell"],
            seconds=4.5,
            empty=a_timeline().empty,
            ranges={arm: f"{arm}.range" for arm in left},
            steps={arm: a_variant(arm).steps for arm in left},
            host=dict.fromkeys(left, HOST),
            failed={arm: why for arm, why in self.incomplete.items() if arm in left},
        )
        return Finished(parts, crashed)


def taken(runner, *names, hello=HELLO, watcher=None, step=None, case=CASE):
    request = TimelineRequest("quick", case, ops.STEP, names or ("fused",), step)
    return take_step_timeline(request, runner, hello, watcher)


def test_a_step_is_checked_and_then_traced():
    runner, heard = ScriptedRunner(), []
    watcher = SimpleNamespace(round=heard.append)
    timeline = taken(runner, "fused", "separate", watcher=watcher)
    (check, checked), (trace, traced) = runner.asked
    assert (check, checked) == (CheckCase(CASE, (ops.STEP,)), ["fused", "separate"])
    assert (trace, traced) == (TakeTimeline(CASE, ops.STEP, STEPS - 1), ["fused", "separate"])
    assert len(heard) == 2
    workload = built_record(CASE.parameters)
    assert (timeline.config, timeline.case, timeline.operation) == ("quick", "one", ops.STEP)
    assert (timeline.step, timeline.num_steps) == (STEPS - 1, STEPS)
    assert timeline.digest == workload.digest
    assert timeline.environment == HELLO.environment
    assert (timeline.source, timeline.missing) == ("a profiler 1.0", ["what it does not tell"])
    assert timeline.seconds == 4.5
    assert timeline.empty == a_timeline().empty
    assert [variant.name for variant in timeline.variants] == ["fused", "separate"]
    for variant in timeline.variants:
        assert variant.nvtx_range == f"{variant.name}.range"
        assert [steps.tracing for steps in variant.steps] == list(Tracing)
        assert variant.host == HOST
        assert variant.reason is None


@pytest.mark.parametrize("step", range(STEPS))
def test_the_bytes_are_those_of_the_step(step):
    traffic = build_workload(CASE.parameters).traffic(ops.STEP)
    assert len({each.read + each.written for each in traffic}) > 1
    timeline = taken(ScriptedRunner(), step=step)
    assert timeline.step == step
    assert timeline.required_bytes == traffic[step].read + traffic[step].written


def test_variants_that_fail_are_not_traced_and_keep_their_place():
    wrong, crashed = reason("row 3 differs"), reason("died while checked")
    runner = ScriptedRunner({"wrong": wrong}, {CheckCase: {"crashed": crashed}})
    timeline = taken(runner, "wrong", "good", "crashed")
    assert runner.asked[0][1] == ["wrong", "good", "crashed"]
    assert runner.asked[1][1] == ["good"]
    assert [variant.name for variant in timeline.variants] == ["wrong", "good", "crashed"]
    assert [variant.reason for variant in timeline.variants] == [wrong, None, crashed]
    assert timeline.variant("wrong").steps == []
    assert timeline.variant("good").steps


def test_variants_that_fail_while_traced():
    crashed, incomplete = reason("died while traced"), reason("records were lost")
    runner = ScriptedRunner(
        crashed={TakeTimeline: {"crashed": crashed}}, incomplete={"incomplete": incomplete}
    )
    timeline = taken(runner, "good", "crashed", "incomplete")
    assert [variant.reason for variant in timeline.variants] == [None, crashed, incomplete]
    # Half of the samples would look like a timeline.
    assert timeline.variant("incomplete").steps == []
    assert timeline.variant("incomplete").host is None
    assert timeline.variant("crashed").nvtx_range == ""


def test_nothing_is_asked_without_a_gpu():
    runner = ScriptedRunner()
    with pytest.raises(UsageError, match=r"are of a GPU, and there is none here.*--tool static"):
        taken(runner, hello=Hello("cpu", make_environment("cpu"), None))
    assert runner.asked == []


@pytest.mark.parametrize("step", [STEPS, -1])
def test_a_step_that_there_is_not_is_refused_before_anything_runs(step):
    runner = ScriptedRunner()
    expected = rf"step {step}: the window of case 'one' has no such step; .* from 0 to {STEPS - 1}"
    with pytest.raises(UsageError, match=expected):
        taken(runner, step=step)
    assert runner.asked == []


def test_a_case_without_a_window_has_steps_as_well():
    parameters = UniformParameters(
        workload="uniform",
        requests=2,
        tokens=4,
        max_num_reqs=4,
        max_num_batched_tokens=16,
        max_model_len=64,
    )
    case = CaseSpec(name="two", parameters=parameters)
    timeline = taken(ScriptedRunner(), case=case)
    assert timeline.step == timeline.num_steps - 1
