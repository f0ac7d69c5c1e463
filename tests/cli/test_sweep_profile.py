"""`bt-bench sweep --profile`, on a GPU that is not there and with a stand-in for Nsight Compute."""

from __future__ import annotations

import json
import lzma
import random
import sys
from typing import Any, ClassVar

import pytest
from support import commands
from support.commands import run
from support.factories import (
    make_calibration,
    make_environment,
    make_measurement,
    make_rounds,
)
from support.ncu import FakeAction, FakeMetric, fake_module, fake_ncu
from support.timelines import a_variant, empty_calls

from bt_bench.protocol.records import build_workload, record_of
from bt_bench.results import Quantity, Reason, ReasonCode, read_counters, read_timeline
from bt_bench.results.files.folders import RunFolder
from bt_bench.results.files.reading import read_run
from bt_bench.results.run.case import CheckReport
from bt_bench.worker import (
    Calibrate,
    CheckCase,
    Checked,
    CheckOutcome,
    MeasureCase,
    Measured,
    TakeTimeline,
    TimelineParts,
)
from bt_bench.worker.profiling.marking import MarkAnswer, Marked
from bt_bench.worker.tasks.messages import Hello
from bt_bench.worker.tasks.runner import Finished
from bt_bench.worker.tasks.tasks import CheckConformance

ROUNDS = 40
# Time of a step by case and variant in µs: one case is the slowest, another one changes most.
APART = {"one": {"baseline": 40.0, "fused": 20.0}, "two": {"baseline": 90.0, "fused": 88.0}}
TOGETHER = {"one": {"baseline": 40.0, "fused": 39.0}, "two": {"baseline": 90.0, "fused": 30.0}}
BROKEN = Reason(code=ReasonCode.RAISED, message="it broke")
TIMELINE_FILES = {"profile.md", "report.html", "timeline.json", "timeline.svg", "trace.json"}
COUNTERS_FILES = {"counters.md", "report.html", "counters.json", "kernels.ncu-rep"}


class ScriptedGpu:
    """Stands in for the supervisor of a worker with a GPU, on which a step takes scripted times."""

    step_us: ClassVar[dict[str, dict[str, float]]] = APART
    wrong: ClassVar[set[str]] = set()  # variants that fail every case
    traced: ClassVar[list[tuple[str, list[str]]]] = []  # cases, with variants
    on_trace: ClassVar[Any] = None  # is called before each

    def __init__(self, setup: Any, serve: object, on_traceback: object = None) -> None:
        self.hello = Hello("cuda", make_environment(), 1 << 40)

    def start(self) -> None:
        """There is nothing to start ahead."""

    def close(self) -> None:
        """There is nothing to kill."""

    def __enter__(self) -> ScriptedGpu:
        return self

    def __exit__(self, *error: object) -> None:
        """There is nothing to end."""

    def run(self, task: Any, arms: list[str], watcher: Any = None) -> Any:
        match task:
            case Calibrate():
                return Finished(make_calibration(), {})
            case CheckConformance():
                return Finished(self._outcomes(arms, task.operations), {})
            case CheckCase():
                parameters = task.case.parameters
                record = record_of(parameters, build_workload(parameters))
                return Finished(Checked(record, self._outcomes(arms, task.operations)), {})
            case MeasureCase():
                times = self.step_us[task.case.name]
                return Finished({arm: self._measured(arm, times[arm]) for arm in arms}, {})
            case TakeTimeline():
                self.traced.append((task.case.name, list(arms)))
                if self.on_trace is not None:
                    type(self).on_trace()
                steps = {arm: a_variant(arm).steps for arm in arms}
                parts = TimelineParts("scripted", [], 1.0, empty_calls(), steps=steps)
                return Finished(parts, {})
        raise AssertionError(task)

    def _outcomes(self, arms, operations):
        passed = CheckOutcome(CheckReport(steps=1, buffers=["slot_mappings"]), None)
        failed = CheckOutcome(None, BROKEN)
        return {(a, o): failed if a in self.wrong else passed for a in arms for o in operations}

    def _measured(self, arm: str, step_us: float) -> Measured:
        # In most rounds as long as scripted, so that this is the median.
        rng = random.Random(arm)
        samples = [[step_us * (1 + max(0, rng.uniform(-2, 1)) / 1e3)] for _ in range(ROUNDS)]
        measurement = make_measurement(Quantity.STEP_US, samples)
        return Measured(measurements=[measurement], rounds=make_rounds(ROUNDS))


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """The scripted GPU, as at first."""
    monkeypatch.setattr(commands, "InProcess", ScriptedGpu)
    for name, value in {"step_us": APART, "wrong": set(), "traced": [], "on_trace": None}.items():
        monkeypatch.setattr(ScriptedGpu, name, value)
    return ScriptedGpu


@pytest.fixture(autouse=True)
def ncu(tmp_path, monkeypatch):
    """Puts a stand-in on `PATH`; gives a function that changes what it does."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    counted = tmp_path / "counted.txt"
    answer = tmp_path / "answer.json"

    def does(body='echo a report > "$report"', failure=None):
        lines = f'cp {answer} "$folder"; echo counted >> {counted}; {body}'
        fake_ncu(tmp_path / "bin" / "ncu", body=lines)
        names = ["baseline", "fused"] if failure is None else ["baseline"]
        marked = Marked(
            environment=make_environment(),
            step=0,
            num_steps=1,
            digest="d",
            ranges={name: f"{name}.step" for name in names},
            failures={} if failure is None else {"fused": failure},
        )
        answer.write_text(MarkAnswer(marked=marked).model_dump_json())
        metrics = {"gpu__time_duration.sum": FakeMetric(4e3)}
        actions = [FakeAction("gather", f"{name}.step", metrics) for name in names * 3]
        monkeypatch.setitem(sys.modules, "ncu_report", fake_module(*actions))
        return counted

    does()
    return does


def files_of(folder):
    return {path.name for path in folder.iterdir()}


def test_the_slowest_and_the_most_changed_case_are_profiled(config, tmp_path, gpu):
    out = tmp_path / "run"
    locked = []
    gpu.on_trace = lambda: locked.append((out / ".lock").exists())
    outcome = run("sweep", config, "--out", out, "--profile")
    assert outcome.code == 0, outcome.err
    assert locked == [True, True]
    assert outcome.out.splitlines()[-2:] == [
        f"Profile: {out}/profile-two/ (slowest: baseline takes 90.00 µs)",
        f"Profile: {out}/profile-one/ "
        "(most changed: fused takes 50.0 % less than baseline (FASTER))",
    ]
    assert gpu.traced == [("two", ["baseline", "fused"]), ("one", ["baseline", "fused"])]
    for case in ("one", "two"):
        folder = out / f"profile-{case}"
        assert files_of(folder) == TIMELINE_FILES | COUNTERS_FILES
        timeline, counters = read_timeline(folder), read_counters(folder)
        assert (timeline.case, timeline.operation, timeline.config) == (case, "step", "tiny")
        assert (counters.case, counters.operation) == (case, "step")
        assert [variant.name for variant in counters.variants] == ["baseline", "fused"]
        assert "Timeline" in (folder / "profile.md").read_text()
        assert "Throughput and occupancy" in (folder / "counters.md").read_text()
    # It is still the folder of a run.
    assert [result.variant.name for result in read_run(RunFolder.open(out))] == [
        "baseline",
        "fused",
    ]
    shown = run("show", out).out
    assert shown.endswith(f"\nProfile: {out}/profile-one/, {out}/profile-two/\n")
    assert "Profile:" not in run("show", out, "--all").out


def test_one_folder_where_both_are_the_same_case(config, tmp_path, gpu):
    gpu.step_us = TOGETHER
    out = tmp_path / "run"
    document = run("sweep", config, "--out", out, "--profile", "--json").json()
    assert document["complete"] is True
    assert document["profiles"] == [
        {
            "case": "two",
            "why": [
                "slowest: baseline takes 90.00 µs",
                "most changed: fused takes 66.7 % less than baseline (FASTER)",
            ],
            "folder": str(out / "profile-two"),
            "files": sorted(TIMELINE_FILES | COUNTERS_FILES),
        }
    ]
    assert not (out / "profile-one").exists()


def test_without_the_option_nothing_is_profiled(config, tmp_path, gpu, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    out = tmp_path / "run"
    outcome = run("sweep", config, "--out", out, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json()["profiles"] == []
    assert gpu.traced == []
    assert "Profile:" not in run("show", out).out


def refused(config, tmp_path, *options):
    out = tmp_path / "run"
    outcome = run("sweep", config, "--out", out, "--profile", *options)
    assert outcome.code == 2
    assert outcome.out == ""
    assert not out.exists()
    return " ".join(outcome.err.split())


def test_without_a_gpu_it_is_refused_first(config, tmp_path, gpu, monkeypatch):
    class NoGpu(ScriptedGpu):
        def __init__(self, *given: object) -> None:
            self.hello = Hello("cpu", make_environment("cpu"), 1 << 40)

    monkeypatch.setattr(commands, "InProcess", NoGpu)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for more in ((), ("--dry-run",)):
        message = refused(config, tmp_path, *more)
        assert "--profile traces a GPU, and there is none here" in message
        assert "use bt-bench profile --tool static" in message


def test_what_cannot_be_profiled_is_refused_first(config, tmp_path, monkeypatch):
    message = refused(config, tmp_path, "--operations", "stage")
    assert "operation 'stage' launches nothing" in message
    fake_ncu(tmp_path / "bin" / "ncu", version="2019.1.0")
    assert "which is too old" in refused(config, tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("bt_bench.runs.profile.ncu_tool.INSTALLED", ("/none/ncu",))
    assert "ncu is neither on PATH" in refused(config, tmp_path)


def test_without_the_module_that_reads_reports_it_is_refused_first(config, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    assert "pip install ncu-report" in refused(config, tmp_path)


def test_counters_that_may_not_be_read_cost_nothing_else(config, tmp_path, gpu, ncu):
    counted = ncu(body="echo '==ERROR== ERR_NVGPUCTRPERM - no permission'")
    out = tmp_path / "run"
    outcome = run("sweep", config, "--out", out, "--profile", "--json")
    assert outcome.code == 2
    assert "bt-bench: error: two: no counters: " in outcome.err
    assert "may not read this GPU's counters (ERR_NVGPUCTRPERM)" in outcome.err
    assert "bt-bench: error: one: no counters either" in outcome.err
    assert "later with: " in outcome.err
    assert f"sweep --resume {out} --device cuda --profile\n" in outcome.err
    assert counted.read_text().count("counted") == 1  # the second case would be refused, too
    document = outcome.json()
    assert document["complete"] is True
    assert [set(each["files"]) for each in document["profiles"]] == [TIMELINE_FILES] * 2
    assert all(result.complete for result in read_run(RunFolder.open(out)))

    # Later only what is missing is taken.
    for timeline in out.glob("*/timeline.json"):
        timeline.with_name("timeline.json.xz").write_bytes(lzma.compress(timeline.read_bytes()))
        timeline.unlink()
    ncu()
    gpu.traced.clear()
    outcome = run("sweep", "--resume", out, "--profile", "--json")
    assert outcome.code == 0, outcome.err
    assert "two: the timeline of an earlier call is kept" in outcome.err
    assert gpu.traced == []
    files = [set(each["files"]) for each in outcome.json()["profiles"]]
    packed = TIMELINE_FILES - {"timeline.json"} | {"timeline.json.xz"}
    assert files == [packed | COUNTERS_FILES] * 2


def test_a_timeline_that_fails_costs_nothing_else(config, tmp_path, gpu):
    from bt_bench.base.errors import BtBenchError

    def fail():
        raise BtBenchError("Traceback …\ninternal error")

    gpu.on_trace = fail
    out = tmp_path / "run"
    outcome = run("sweep", config, "--out", out, "--profile", "--json")
    assert outcome.code == 70
    assert "bt-bench: error: two: no timeline: internal error\n" in outcome.err
    assert [name for name, _ in gpu.traced] == ["two"]
    files = [set(each["files"]) for each in outcome.json()["profiles"]]
    assert files == [COUNTERS_FILES] * 2


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_while_profiling_loses_nothing_of_the_sweep(config, tmp_path, gpu, as_json):
    calls = []

    def interrupt():
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    gpu.on_trace = interrupt
    out = tmp_path / "run"
    outcome = run("sweep", config, "--out", out, "--profile", *["--json"] * as_json)
    assert outcome.code == 130
    assert f"stopped while profiling; the sweep is complete in {out}" in outcome.err
    assert f"sweep --resume {out} --device cuda --profile\n" in outcome.err
    assert "partial" not in outcome.err
    assert all(result.complete for result in read_run(RunFolder.open(out)))
    assert (out / "comparison.md").is_file()
    assert not (out / ".lock").exists()
    if as_json:
        assert [each["case"] for each in json.loads(outcome.out)["profiles"]] == ["two"]
    else:
        assert "Whole step" in outcome.out
        assert f"Profile: {out}/profile-two/" in outcome.out
    gpu.on_trace = None
    assert run("sweep", "--resume", out, "--profile").code == 0
    assert [name for name, _ in gpu.traced] == ["two", "one", "one"]


def test_an_interrupted_sweep_is_resumed_with_its_profiles(config, tmp_path, gpu, monkeypatch):
    out = tmp_path / "run"

    class Interrupted(ScriptedGpu):
        def run(self, task: Any, arms: list[str], watcher: Any = None) -> Any:
            if isinstance(task, MeasureCase):
                raise KeyboardInterrupt
            return super().run(task, arms, watcher)

    monkeypatch.setattr(commands, "InProcess", Interrupted)
    outcome = run("sweep", config, "--out", out, "--profile")
    assert outcome.code == 130
    assert "the results so far are in" in outcome.err
    assert f"sweep --resume {out} --device cuda --profile\n" in outcome.err
    assert gpu.traced == []
    monkeypatch.setattr(commands, "InProcess", ScriptedGpu)
    outcome = run("sweep", "--resume", out, "--profile")
    assert outcome.code == 0, outcome.err
    assert f"Profile: {out}/profile-two/" in outcome.out


def test_a_variant_that_failed_is_not_run_again(config, tmp_path, gpu, ncu):
    gpu.wrong = {"fused"}
    ncu(failure=BROKEN)
    out = tmp_path / "run"
    outcome = run("sweep", config, "--out", out, "--profile")
    assert outcome.code == 5
    assert gpu.traced == [("two", ["baseline"])]
    for read in (read_timeline, read_counters):
        assert [each.name for each in read(out / "profile-two").variants] == ["baseline"]
    assert f"Profile: {out}/profile-two/ (slowest: baseline takes 90.00 µs)\n" in outcome.out


def test_a_variant_that_fails_only_when_profiled(config, tmp_path, ncu):
    ncu(failure=BROKEN)
    out = tmp_path / "run"
    outcome = run("sweep", config, "--out", out, "--profile")
    assert outcome.code == 5
    assert read_counters(out / "profile-one").variants[1].reason == BROKEN


def test_nothing_may_be_left_to_profile(config, tmp_path, gpu):
    gpu.wrong = {"baseline", "fused"}
    outcome = run("sweep", config, "--out", tmp_path / "run", "--profile")
    assert outcome.code == 5
    assert "nothing is profiled: no case has a timed step" in outcome.err
    assert gpu.traced == []


def test_a_dry_run_says_by_which_tools(config, tmp_path):
    outcome = run("sweep", config, "--profile", "--dry-run")
    assert outcome.code == 0, outcome.err
    expected = f"counters by Nsight Compute 2025.3.1.0 ({tmp_path}/bin/ncu)"
    assert expected in outcome.out.splitlines()[-1]
    outcome = run("sweep", config, "--profile", "--dry-run", "--json")
    assert outcome.json()["device"] == "cuda"
    assert expected in outcome.err
    assert "profiles:" not in run("sweep", config, "--dry-run").out
