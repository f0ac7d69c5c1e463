"""The sweep loop with a runner that answers as told: order, statuses, what is stored and heard."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.factories import (
    make_calibration,
    make_environment,
    make_measurement,
    make_rounds,
    make_workload,
)

from bt_bench.base.errors import UsageError
from bt_bench.config.spec import CaseSpec, SweepSpec
from bt_bench.protocol import flat_parameters
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.reading import read_run
from bt_bench.results.run.case import CheckReport, Stopping, StopReason
from bt_bench.results.run.nouns import Quantity, Reason, ReasonCode
from bt_bench.results.run.plan import Plan
from bt_bench.runs.preflight import check_memory
from bt_bench.runs.progress import CaseReport
from bt_bench.runs.sweep import SweepRequest, run_sweep
from bt_bench.suites.block_tables import operations as ops
from bt_bench.suites.block_tables.workloads import UniformParameters
from bt_bench.variants.catalogue import VariantEntry
from bt_bench.worker.tasks.outcome import Measured, RoundProgress
from bt_bench.worker.tasks.runner import Finished, Setback
from bt_bench.worker.tasks.tasks import (
    Calibrate,
    CheckCase,
    CheckConformance,
    Checked,
    CheckOutcome,
    MeasureCase,
)

ARMS = ("baseline", "fused")
OPERATIONS = [ops.GATHER_SLOTS, ops.STEP]


def reason(code):
    return Reason(code=code, message=f"it was {code}")


def measured(samples=((1.0,), (2.0,)), code=None):
    return Measured(
        measurements=[make_measurement(Quantity.STEP_US, samples)],
        control=[make_measurement(Quantity.STEP_US, samples)],
        rounds=make_rounds(len(samples)),
        stopping=Stopping(
            reason=StopReason.PRECISE,
            rounds=len(samples),
            discarded={},
            seconds=0.5,
            half_widths={Quantity.STEP_US: 0.0075, Quantity.HOST_US: None},
        ),
        reason=code and reason(code),
    )


@dataclass
class ScriptedRunner:
    """Passes every check and measures the same, but for what it is told; keeps what it did.

    Args:
        conformance: arms that fail the conformance check.
        checked: by case and arm, reasons of verdicts.
        broke_off: by task's type, case and arm, reasons of arms that are left out.
        results: by key and arm, what was measured.
        stop_at: the key at which the run is interrupted.
        setbacks: by task's title, what went wrong and not again.
    """

    conformance: dict = field(default_factory=dict)
    checked: dict = field(default_factory=dict)
    broke_off: dict = field(default_factory=dict)
    results: dict = field(default_factory=dict)
    stop_at: str | None = None
    setbacks: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)

    def run(self, task, arms, watcher=None):
        finished = self._run(task, arms, watcher)
        return replace(finished, setbacks=tuple(self.setbacks.get(task.title, ())))

    def _run(self, task, arms, watcher):
        if isinstance(task, Calibrate):
            self.calls.append("calibrate")
            return Finished(make_calibration({"empty_call": [0.05]}), {})
        if isinstance(task, CheckConformance):
            verdicts = {
                (arm, operation): self._verdict(self.conformance.get(arm))
                for arm in arms
                for operation in task.operations
            }
            return Finished(verdicts, {})
        broke_off = self.broke_off.get((type(task), task.case.name), {})
        left = [arm for arm in arms if arm not in broke_off]
        if isinstance(task, CheckCase):
            self.calls.append(("check", task.case.name, tuple(arms)))
            return Finished(self._check(task, left), broke_off)
        assert isinstance(task, MeasureCase)
        key = f"{task.operation}/{task.case.name}"
        if key == self.stop_at:
            raise KeyboardInterrupt
        self.calls.append(("measure", key, tuple(arms)))
        watcher.round(RoundProgress(2, 2))
        return Finished(
            {arm: self.results.get((key, arm)) or measured() for arm in left}, broke_off
        )

    def _check(self, task, arms):
        workload = make_workload(task.case.name).model_copy(
            update={"parameters": flat_parameters(task.case.parameters)}
        )
        verdicts = {
            (arm, operation): self._verdict(self.checked.get((task.case.name, arm)))
            for arm in arms
            for operation in task.operations
        }
        return Checked(workload, verdicts)

    @staticmethod
    def _verdict(found):
        return CheckOutcome(None if found else CheckReport(steps=1, buffers=["slots"]), found)


class Listening:
    """Keeps what it hears."""

    def __init__(self):
        self.heard, self.reports = [], []

    def start(self, total, done=0, unit=""):
        self.heard.append((total, done))

    def phase(self, what, of=""):
        self.heard.append(f"{what} {of}".rstrip())

    def round(self, progress):
        if self.heard[-1] != progress.what:
            self.heard.append(progress.what)

    def worker_replaced(self, why):
        self.heard.append(why)

    def advance(self, report=None):
        self.reports.append(report)

    def say(self, text):
        self.heard.append(text)


def make_spec(names, operations=OPERATIONS, **plan):
    cases = [
        CaseSpec(name=name, parameters=UniformParameters(workload="uniform", requests=2, tokens=4))
        for name in names
    ]
    return SweepSpec(
        name="scripted", variants=list(ARMS), operations=operations, plan=Plan(**plan), cases=cases
    )


@pytest.fixture
def sweep(tmp_path):
    """Sweeps, into one folder unless another is given; returns results and what was heard."""
    source = tmp_path / "variant.py"
    source.write_text("")
    entries = [VariantEntry(name, "", source, shipped=False, package="bt_kernels") for name in ARMS]

    def go(runner, spec, listening=None, folder=None):
        listening = listening or Listening()
        environment = make_environment("cpu")
        request = SweepRequest(spec, entries, environment, folder or go.folder, ["bt-bench"])
        return run_sweep(request, runner, listening), listening

    go.folder = RunFolder.create_exact(tmp_path / "run")
    return go


def by_key(result):
    return {case.key: case for case in result.cases}


def test_results_are_in_the_order_of_the_config_and_runs_are_not(sweep):
    names = [f"case{number}" for number in range(12)]
    spec = make_spec(names)
    runner = ScriptedRunner()
    results, _ = sweep(runner, spec)
    keys = [f"{operation}/{name}" for name in names for operation in OPERATIONS]
    assert [[case.key for case in result.cases] for result in results] == [keys, keys]
    assert results == read_run(sweep.folder)
    assert all(result.complete for result in results)
    run = [call[1] for call in runner.calls if call[0] == "measure"]
    assert sorted(run) == sorted(keys)
    assert run != keys
    assert {key.split("/")[0] for key in run[::2]} == set(OPERATIONS), "operations are shuffled too"


def test_remarks_of_a_workload_are_heard_and_stored(sweep, monkeypatch):
    given = make_workload

    def remarked(name):
        return given(name).model_copy(update={"remarks": [f"2 of {name} left out"]})

    monkeypatch.setitem(globals(), "make_workload", remarked)
    results, listening = sweep(ScriptedRunner(), make_spec(["a"]))
    assert listening.heard.count("a: 2 of a left out") == 1
    assert all(case.workload.remarks == ["2 of a left out"] for case in results[0].cases)


def test_the_order_follows_from_the_seed(sweep, tmp_path):
    orders = []
    for number, seed in enumerate((1, 1, 2)):
        spec = make_spec([f"case{i}" for i in range(9)], seed=seed)
        runner = ScriptedRunner()
        sweep(runner, spec, folder=RunFolder.create_exact(tmp_path / str(number)))
        orders.append(runner.calls)
    assert orders[0] == orders[1] != orders[2]


class Unheard(Listening):
    """Nobody reads what it tells any more once the first case is measured."""

    def phase(self, what, of=""):
        if self.reports:
            raise BrokenPipeError
        super().phase(what, of)


def test_results_are_written_although_nobody_reads_the_progress(sweep):
    with pytest.raises(BrokenPipeError):
        sweep(ScriptedRunner(), make_spec(["one", "two"]), Unheard())
    assert sweep.folder.comparison_path.exists()
    assert [len(result.cases) for result in read_run(sweep.folder)] == [1, 1]


def test_everything_that_was_measured_is_stored(sweep):
    (baseline, fused), listening = sweep(ScriptedRunner(), make_spec(["one"], [ops.STEP]))
    expected = measured()
    for result in (baseline, fused):
        assert result.calibration == make_calibration({"empty_call": [0.05]})
        (case,) = result.cases
        for name in ("measurements", "control", "rounds", "stopping", "launches", "compiled"):
            assert getattr(case, name) == getattr(expected, name)
    assert listening.heard == [
        (1, 0),
        "calibrating the harness",
        "checking the variants on the conformance workloads",
        "conformance workloads",
        "checking one",
        "measuring step/one",
        "measuring",
        "writing the tables and the page",
    ]
    assert listening.reports == [
        CaseReport("step/one", [], [], 2, StopReason.PRECISE, pytest.approx(0.75), [], [])
    ]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ReasonCode.DISTURBED, "insufficient"),
        (ReasonCode.PROFILER_INCOMPLETE, "ok"),
        (ReasonCode.WRONG_RESULT, "failed"),
        (ReasonCode.CRASHED, "failed"),
        (ReasonCode.HUNG, "failed"),
        (ReasonCode.UNSUPPORTED, "unsupported"),
    ],
)
def test_a_reason_makes_the_status(code, status, sweep):
    runner = ScriptedRunner(results={("step/one", "fused"): measured(code=code)})
    (baseline, fused), listening = sweep(runner, make_spec(["one"], [ops.STEP]))
    assert (fused.cases[0].status, fused.cases[0].reason.code) == (status, code)
    assert baseline.cases[0].status == "ok"
    report = listening.reports[0]
    assert report.failed == (["fused"] if status == "failed" else [])
    assert report.insufficient == (["fused"] if status == "insufficient" else [])
    assert report.unsupported == (["fused"] if status == "unsupported" else [])


def test_what_lacks_a_feature_of_a_conformance_workload_is_measured(sweep):
    runner = ScriptedRunner(conformance={"fused": reason(ReasonCode.UNSUPPORTED)})
    (_, fused), _ = sweep(runner, make_spec(["one"]))
    assert all(case.status == "ok" for case in fused.cases)


def test_what_fails_conformance_fails_every_case_and_is_not_run(sweep):
    runner = ScriptedRunner(conformance={"fused": reason(ReasonCode.WRONG_RESULT)})
    (baseline, fused), listening = sweep(runner, make_spec(["one", "two"]))
    assert {case.reason.code for case in fused.cases} == {"wrong_result"}
    told = [text for text in listening.heard if "FAILED" in str(text)]
    assert len(told) == 1
    assert told[0].startswith("fused: FAILED, and so will all of its cases, which are not run")
    assert all(not each.failed and each.left_out == ["fused"] for each in listening.reports)
    assert all(case.status == "ok" for case in baseline.cases)
    assert {call[2] for call in runner.calls if call != "calibrate"} == {("baseline",)}


def test_what_fails_a_case_is_tried_in_the_next(sweep):
    runner = ScriptedRunner(
        checked={("one", "fused"): reason(ReasonCode.WRONG_RESULT)},
        broke_off={(CheckCase, "two"): {"fused": reason(ReasonCode.CRASHED)}},
    )
    (baseline, fused), _ = sweep(runner, make_spec(["one", "two", "three"], [ops.STEP]))
    found = {case.case: case.reason and case.reason.code for case in fused.cases}
    assert found == {"one": "wrong_result", "two": "crashed", "three": None}
    assert all(case.status == "ok" for case in baseline.cases)
    asked = {call[1]: call[2] for call in runner.calls if call[0] == "measure"}
    assert asked == {"step/one": ("baseline",), "step/two": ("baseline",), "step/three": ARMS}


def test_what_breaks_off_while_measured_fails_that_case(sweep):
    runner = ScriptedRunner(broke_off={(MeasureCase, "one"): {"fused": reason(ReasonCode.HUNG)}})
    (_, fused), _ = sweep(runner, make_spec(["one", "two"], [ops.STEP]))
    assert by_key(fused)["step/one"].reason.code == "hung"
    assert by_key(fused)["step/one"].check is not None
    assert by_key(fused)["step/two"].status == "ok"


def test_nothing_is_measured_where_nobody_passes(sweep):
    wrong = {("one", arm): reason(ReasonCode.WRONG_RESULT) for arm in ARMS}
    runner = ScriptedRunner(checked=wrong)
    results, listening = sweep(runner, make_spec(["one"]))
    assert not [call for call in runner.calls if call[0] == "measure"]
    assert all(case.status == "failed" for result in results for case in result.cases)
    assert listening.reports[0].rounds is None


def test_a_crash_that_did_not_come_back_is_stored_with_whoever_may_have_crashed(sweep):
    crashed = reason(ReasonCode.CRASHED)
    runner = ScriptedRunner(
        setbacks={
            "calibrating": [Setback(crashed, None)],
            "conformance:corners": [Setback(crashed, "fused")],
            "one": [Setback(crashed, None)],
            "step/two": [Setback(crashed, "baseline")],
        },
        checked={("one", "fused"): reason(ReasonCode.WRONG_RESULT)},
    )
    spec = make_spec(["one", "two"], [ops.STEP])
    sweep(runner, spec)
    runner.setbacks = {}
    results, _ = sweep(runner, spec)  # as --resume does: what was stored stays
    assert {
        result.variant.name: {(crash.during, crash.known, crash.reason) for crash in result.crashes}
        for result in results
    } == {
        "baseline": {
            ("calibrating", False, crashed),
            ("one", False, crashed),
            ("step/two", True, crashed),
        },
        "fused": {
            ("calibrating", False, crashed),
            ("conformance:corners", True, crashed),
            ("one", False, crashed),
        },
    }


def test_an_interrupted_run_is_continued_where_it_stopped(sweep):
    spec = make_spec([f"case{number}" for number in range(6)], [ops.STEP])
    runner = ScriptedRunner(stop_at="step/case2")
    with pytest.raises(KeyboardInterrupt):
        sweep(runner, spec)
    partial = read_run(sweep.folder)
    done = len(partial[0].cases)
    assert 0 < done < 6
    assert not any(result.complete for result in partial)
    assert not list(sweep.folder.path.glob("*.jsonl"))
    assert "PARTIAL" in sweep.folder.comparison_path.read_text()

    again = ScriptedRunner()
    results, listening = sweep(again, spec)
    assert listening.heard[0] == (6, done)
    assert "calibrate" not in again.calls
    assert len([call for call in again.calls if call[0] == "measure"]) == 6 - done
    assert [case.case for case in results[0].cases] == [case.name for case in spec.cases]
    assert results[0].run_id == partial[0].run_id
    assert all(result.complete for result in results)


def test_memory_does_not_grow_with_the_cases(sweep):
    held = []

    class Weighing(Listening):
        def advance(self, report=None):
            held.append(tracemalloc.get_traced_memory()[0])

    samples = [[float(number)] for number in range(1, 201)]
    runner = ScriptedRunner()
    runner.results = dict.fromkeys(
        [(f"step/case{i}", arm) for i in range(50) for arm in ARMS], measured(samples)
    )
    spec = make_spec([f"case{number}" for number in range(50)], [ops.STEP])
    tracemalloc.start()
    try:
        sweep(runner, spec, Weighing())
    finally:
        tracemalloc.stop()
    size = sum(len(line) for line in _first_case(sweep.folder.path))
    assert held[-1] - held[19] < 3 * size, "30 cases must not be held"


def _first_case(folder: Path):
    return [path.read_text().splitlines()[-3] for path in folder.glob("*.json")]


def test_memory_is_that_of_all_instances_and_of_the_control():
    spec = make_spec(["one"], instances=3, control=True)
    without = make_spec(["one"], instances=3, control=False)
    enough = 10**12
    check_memory(spec, 2, enough)
    check_memory(spec, 2, None)
    with pytest.raises(UsageError, match="3 instances of 2 variants and the control"):
        check_memory(spec, 2, 1000)
    with pytest.raises(UsageError, match="3 instances of 2 variants;"):
        check_memory(without, 2, 1000)
