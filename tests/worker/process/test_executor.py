"""What the worker does with a task, and what it makes of what goes wrong."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest
import torch
from support.variants import classes

from bt_bench.base.errors import UsageError
from bt_bench.config.spec import CaseSpec
from bt_bench.results.run.nouns import ReasonCode
from bt_bench.results.run.plan import Plan
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import UniformParameters
from bt_bench.variants import raised
from bt_bench.worker.machine import activity
from bt_bench.worker.measuring.bench import CpuBench
from bt_bench.worker.measuring.case import CONTROL
from bt_bench.worker.measuring.watch import NoTelemetry, Surroundings
from bt_bench.worker.process import executor as process
from bt_bench.worker.process.executor import Executor, LocalRunner
from bt_bench.worker.tasks import failures
from bt_bench.worker.tasks.failures import ArmFailedError
from bt_bench.worker.tasks.outcome import Measured, RoundProgress
from bt_bench.worker.tasks.runner import Success, WorkerError
from bt_bench.worker.tasks.tasks import (
    Calibrate,
    CheckCase,
    CheckConformance,
    CountLaunches,
    MeasureCase,
)

PARAMETERS = UniformParameters(
    workload="uniform",
    requests=2,
    tokens=4,
    max_num_reqs=4,
    max_num_batched_tokens=16,
    max_model_len=64,
)
CASE = CaseSpec(name="one", parameters=PARAMETERS)
OTHER = CaseSpec(name="other", parameters=PARAMETERS.model_copy(update={"requests": 3}))
STEP = (ops.STEP,)
MEASURE = MeasureCase(CASE, ops.STEP)


class Bench:
    """A device that can only be asked to calibrate."""

    device = torch.device("cpu")

    around = Surroundings(None, NoTelemetry(), SimpleNamespace(loads=0))

    def calibrate(self, plan):
        return "calibrated"


@pytest.fixture
def variants():
    return classes(["baseline", "fused"])


def copies(variants):
    return {name: [variant] for name, variant in variants.items()}


def executor_of(variants, **plan):
    return Executor(copies(variants), Bench(), Plan(**plan))


def ignore(progress):
    pass


def failing(error, arm=None):
    """In place of `measure_case`: raises, in the name of an arm or of nobody."""

    def measure_case(*_arguments, control, refuse_tampering):
        try:
            raise error
        except BaseException as raised:
            if arm is None:
                raise
            raise ArmFailedError(arm, raised) from raised

    return measure_case


def test_each_task_has_its_result(variants, monkeypatch):
    runner = LocalRunner(executor_of(variants))
    assert runner.run(Calibrate(), ()).value == "calibrated"
    verdicts = runner.run(CheckConformance("corners_int32", STEP), ["fused"]).value
    assert verdicts["fused", ops.STEP].report.steps == 2
    checked = runner.run(CheckCase(CASE, STEP), list(variants)).value
    assert {key: verdict.reason for key, verdict in checked.outcomes.items()} == {
        ("baseline", ops.STEP): None,
        ("fused", ops.STEP): None,
    }
    assert checked.workload.sizes["num_reqs"] == [2]

    counted = runner.run(CountLaunches(CASE, STEP), list(variants)).value
    assert {key: census.totals() for key, census in counted.items()} == {
        ("baseline", ops.STEP): [3],
        ("fused", ops.STEP): [2],
    }

    monkeypatch.setattr(process, "measure_case", lambda *given, **_: given)
    name, given, workload, operation, *_ = runner.run(MEASURE, ["fused"]).value
    assert (name, list(given), operation) == ("one", ["fused"], ops.STEP)
    assert workload.digest() == checked.workload.digest


def test_without_arms_a_case_is_only_described(variants):
    runner = LocalRunner(executor_of(variants))
    assert runner.run(CheckCase(OTHER, STEP), []).value.workload.sizes["num_reqs"] == [3]
    assert runner.run(CheckConformance("corners", STEP), []).value == {}
    assert runner.run(MEASURE, []).value == {}
    assert runner.run(CountLaunches(CASE, STEP), []).value == {}


def test_the_last_workload_is_kept(variants, monkeypatch):
    built = []
    build = process.build_workload
    monkeypatch.setattr(
        process,
        "build_workload",
        lambda p: built.append(p.requests) or build(p),
    )
    runner = LocalRunner(executor_of(variants))
    for case in (CASE, CASE, OTHER, CASE):
        runner.run(CheckCase(case, STEP), [])
    assert built == [2, 3, 2]


@pytest.mark.parametrize(
    ("error", "code", "spent"),
    [
        (ValueError("odd"), ReasonCode.RAISED, False),
        (SystemExit(0), ReasonCode.RAISED, False),
        (MemoryError(), ReasonCode.OUT_OF_MEMORY, True),
        (torch.OutOfMemoryError("CUDA out of memory."), ReasonCode.OUT_OF_MEMORY, True),
        (RuntimeError("CUDA error: out of memory"), ReasonCode.OUT_OF_MEMORY, True),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            ReasonCode.OUT_OF_MEMORY,
            True,
        ),
    ],
)
def test_what_an_arm_raises(error, code, spent, variants, monkeypatch):
    monkeypatch.setattr(process, "measure_case", failing(error, "fused"))
    failure = executor_of(variants).attempt(MEASURE, ["baseline", "fused"], ignore)
    assert (failure.reason.code, failure.place, failure.worker_is_spent) == (code, 1, spent)
    assert failure.reason.message.startswith("while measured: ")


class MuteError(Exception):
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MuteError(), "MuteError: (its str() raised ValueError)"),
        (ValueError("bad \udcff text"), "ValueError: bad \\udcff text"),
        (ValueError("x" * 3000), f"ValueError: {'x' * 499}…"),
    ],
)
def test_whatever_an_exception_says_can_be_stored(error, text, variants, monkeypatch):
    monkeypatch.setattr(process, "measure_case", failing(error, "fused"))
    failure = executor_of(variants).attempt(MEASURE, ["fused"], ignore)
    assert failure.reason.message.startswith(f"while measured: {text} (test_executor.py:")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_disk_is_no_variants_fault(number, variants, monkeypatch):
    raised = RuntimeError("compiling failed")
    raised.__cause__ = OSError(number, os.strerror(number))
    monkeypatch.setattr(process, "measure_case", failing(raised, "fused"))
    with pytest.raises(UsageError, match=r"a file cannot be written: .* or set TMPDIR and"):
        executor_of(variants).attempt(MEASURE, ["fused"], ignore)


def test_where_ctrl_c_does_not_reach_an_interrupt_is_a_variants(variants, monkeypatch):
    class Interrupting(variants["fused"]):
        def prepare_step(self, *args):
            raise KeyboardInterrupt

    executor = executor_of(variants | {"fused": Interrupting})
    with pytest.raises(KeyboardInterrupt):
        executor.attempt(CheckCase(CASE, STEP), ["fused"], ignore)
    monkeypatch.setattr(raised, "_interruptible", False)
    checked = executor.attempt(CheckCase(CASE, STEP), ["baseline", "fused"], ignore).value
    reason = checked.outcomes["fused", ops.STEP].reason
    assert (reason.code, "KeyboardInterrupt" in reason.message) == ("raised", True)
    assert checked.outcomes["baseline", ops.STEP].reason is None


def test_a_file_that_imports_only_once_fails_its_arm(variants, monkeypatch):
    def refuse(name):
        raise UsageError(f"{name}.py: the variant file does not import")

    executor = Executor(copies(variants), Bench(), Plan(), refuse)
    failure = executor.attempt(MEASURE, ["fused"], ignore)
    assert (failure.reason.code, failure.place) == ("raised", 0)


def test_a_lost_device_is_a_crash_whatever_was_raised(variants, monkeypatch):
    def synchronize(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nSearch for …")

    monkeypatch.setattr(failures, "synchronize", synchronize)
    monkeypatch.setattr(process, "measure_case", failing(ValueError("odd"), "baseline"))
    failure = executor_of(variants).attempt(MEASURE, ["baseline", "fused"], ignore)
    assert (failure.reason.code, failure.place, failure.worker_is_spent) == ("crashed", 0, True)
    assert failure.reason.message.startswith(
        "while measured: CUDA error: an illegal memory access was encountered (test_executor.py:"
    )


def test_the_control_is_the_first_arm(variants, monkeypatch):
    monkeypatch.setattr(process, "measure_case", failing(ValueError("odd"), CONTROL))
    executor = executor_of(variants)
    assert executor.attempt(MEASURE, ["fused", "baseline"], ignore).place == 0
    before = activity.current().enter(CONTROL)
    assert activity.current().place == 0
    activity.current().leave(before)


@pytest.mark.parametrize("task", [CheckCase(CASE, STEP), MEASURE], ids=["checked", "measured"])
def test_whose_code_runs_is_noted_in_case_it_ends_the_process(variants, task):
    noted = []

    class Noting(variants["fused"]):
        def append_block_ids(self, *args, **kwargs):
            noted.append(activity.current().place)
            return super().append_block_ids(*args, **kwargs)

        def apply_staged_writes(self):
            noted.append(activity.current().place)
            return super().apply_staged_writes()

    plan = Plan(rounds=2, warmup_rounds=1, instances=1, control=False)
    executor = Executor(copies(variants | {"noting": Noting}), CpuBench(), plan)
    assert isinstance(executor.attempt(task, ["baseline", "noting"], ignore), Success)
    assert set(noted) == {1}
    assert activity.current().place is None


def test_memory_that_runs_out_outside_of_any_arm_is_everybodys(variants, monkeypatch):
    monkeypatch.setattr(process, "measure_case", failing(MemoryError()))
    finished = LocalRunner(executor_of(variants)).run(MEASURE, ["baseline", "fused"])
    assert {arm: reason.code for arm, reason in finished.failed.items()} == {
        "baseline": "out_of_memory",
        "fused": "out_of_memory",
    }
    assert finished.value == {}


@pytest.mark.parametrize("error", [ZeroDivisionError, UsageError, KeyboardInterrupt])
def test_other_errors_are_not_the_arms(error, variants, monkeypatch):
    monkeypatch.setattr(process, "measure_case", failing(error("ours")))
    with pytest.raises(error, match="ours"):
        executor_of(variants).attempt(MEASURE, ["baseline"], ignore)


def test_who_fails_is_left_out_and_the_others_done_again(variants, monkeypatch):
    asked = []

    def measure_case(_case, given, *_rest, control, refuse_tampering):
        asked.append(list(given))
        if "baseline" in given:
            raise ArmFailedError("baseline", ValueError("odd"))
        return {name: Measured() for name in given}

    monkeypatch.setattr(process, "measure_case", measure_case)
    finished = LocalRunner(executor_of(variants)).run(MEASURE, ["baseline", "fused"])
    assert asked == [["baseline", "fused"], ["fused"]]
    assert list(finished.value) == ["fused"]
    assert list(finished.failed) == ["baseline"]


def test_a_check_that_runs_out_of_memory_breaks_off(variants):
    class Greedy(variants["fused"]):
        def prepare_step(self, *args):
            raise MemoryError("no room")

    runner = LocalRunner(executor_of(variants | {"greedy": Greedy}))
    finished = runner.run(CheckCase(CASE, STEP), ["baseline", "greedy", "fused"])
    assert finished.failed["greedy"].code == "out_of_memory"
    assert "one, round 0, step 0: no room" in finished.failed["greedy"].message
    assert [arm for arm, _ in finished.value.outcomes] == ["baseline", "fused"]


def test_no_arm_left_to_blame(variants, monkeypatch):
    class Broken(Bench):
        def calibrate(self, plan):
            raise MemoryError

    with pytest.raises(WorkerError, match="calibrating: MemoryError"):
        LocalRunner(Executor(copies(variants), Broken(), Plan())).run(Calibrate(), ())


def test_progress_is_reported_at_times_and_at_the_end(variants, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(process.time, "monotonic", lambda: now[0])

    def measure_case(*arguments, control, refuse_tampering):
        for done in range(1, 101):
            now[0] += 0.03
            arguments[-1](RoundProgress(done, 100))
        return {}

    monkeypatch.setattr(process, "measure_case", measure_case)
    heard = []
    result = executor_of(variants).attempt(MEASURE, ["fused"], lambda p: heard.append(p.done))
    assert result == Success({})
    assert heard[:3] == [1, 5, 9]
    assert heard[-1] == 100
    assert len(heard) < 30


def test_a_phase_is_told_as_soon_as_it_begins(variants, monkeypatch):
    monkeypatch.setattr(process.time, "monotonic", lambda: 0.0)
    phases = ["warming up", "measuring", "measuring", "checking", "measuring"]

    def measure_case(*arguments, control, refuse_tampering):
        for done, what in enumerate(phases):
            arguments[-1](RoundProgress(done, 100, what))
        return {}

    monkeypatch.setattr(process, "measure_case", measure_case)
    heard = []
    executor_of(variants).attempt(MEASURE, ["fused"], lambda p: heard.append((p.done, p.what)))
    assert heard == [(0, "warming up"), (1, "measuring"), (3, "checking"), (4, "measuring")]
