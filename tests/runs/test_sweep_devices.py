"""A sweep on several devices: each case once, on one of them, whatever happens to their workers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Barrier, Event

import pytest
from support.fake_gpus import (
    ARMS,
    BEGUN,
    OPERATIONS,
    VIOLATIONS,
    done,
    entries_in,
    environment_of,
    make_spec,
)

from bt_bench.base.errors import UsageError
from bt_bench.results import Reason, ReasonCode, RunFolder, VariantResult, read_run
from bt_bench.runs.check import conformance_checks
from bt_bench.runs.progress import Lines
from bt_bench.runs.sharing import Place
from bt_bench.runs.sweep import SweepRequest, run_sweep
from bt_bench.worker.tasks.outcome import RoundProgress
from bt_bench.worker.tasks.runner import Finished, WorkerError
from bt_bench.worker.tasks.tasks import Calibrate, CheckConformance, MeasureCase

A, B = "aaaaaaaa-0000", "bbbbbbbb-0000"


class FakeRunner:
    """A device that does all tasks, until it is lost.

    Args:
        lost_at: number of the measurement at which it is lost; -1: while it is calibrated.
        lost_with: the case that ends it.
        refuses: whether it cannot write.
        after: measures nothing before that one is lost.
    """

    def __init__(self, lost_at=None, lost_with=None, refuses=False, after=None):
        self.measured, self.lost = [], Event()
        self._lost_at, self._lost_with, self._refuses = lost_at, lost_with, refuses
        self._after, self._is_abandoned = after, False

    def run(self, task, arms, watcher=None):
        if isinstance(task, CheckConformance):
            return self._conformed(task, arms)
        if isinstance(task, MeasureCase):
            if self._after is not None:
                assert self._after.lost.wait(20)
            if self._is_abandoned:
                raise WorkerError("the worker was abandoned")
            if self._refuses:
                raise UsageError("no space left")
            if self._lost_at == len(self.measured) or self._lost_with == task.case.name:
                self.lost.set()
                raise WorkerError("no fresh worker could be started: no GPU to run on")
            self.measured.append(task.title)
        elif isinstance(task, Calibrate) and self._lost_at == -1:
            raise WorkerError("it fell off")
        elif isinstance(task, Calibrate):
            watcher.round(RoundProgress(0, 1, "waits for a turn", is_news=True))
        return Finished(done(task, arms), {})

    def _conformed(self, task, arms):
        return Finished(done(task, arms), {})

    def abandon(self):
        self._is_abandoned = True


class Conforming(FakeRunner):
    """A device that waits at its first conformance workload until another is at one, too.

    Args:
        log: of both devices: conformance workloads that are done, and measurements.
        meeting: of both devices.
        is_lost: whether it is lost then.
        crashing: whether its first workload finds that `fused` crashes.
    """

    def __init__(self, log, meeting, *, is_lost=False, crashing=False):
        super().__init__()
        self.conformed, self._log, self._meeting = [], log, meeting
        self._is_lost, self._crashing = is_lost, crashing

    def _conformed(self, task, arms):
        if not self.conformed:
            self._meeting.wait(20)
            if self._is_lost:
                raise WorkerError("it fell off")
        failed = {}
        if self._crashing and not self.conformed and "fused" in arms:
            failed = {"fused": Reason(code=ReasonCode.CRASHED, message="signal 11")}
        self.conformed.append(task.workload)
        self._log.append(task.workload)
        return Finished(done(task, arms), failed)

    def run(self, task, arms, watcher=None):
        if isinstance(task, MeasureCase):
            self._log.append((task.title, *arms))
        return super().run(task, arms, watcher)


class Watched(Lines):
    """Progress as lines, of which one more function sees the rounds."""

    def __init__(self, write, watch):
        super().__init__(write)
        self._watch = watch

    def round(self, progress):
        self._watch(progress)
        super().round(progress)


@pytest.fixture
def sweep(tmp_path):
    """Sweeps on devices of these UUIDs, into one folder; returns the results and what was said."""

    def go(runners, count=6, folder=None, watch=lambda _: None):
        folder = RunFolder(folder or tmp_path / "run")
        folder.path.mkdir(exist_ok=True)
        places = [Place(runner, environment_of(uuid)) for uuid, runner in runners.items()]
        request = SweepRequest(
            make_spec(count), entries_in(tmp_path), places[0].environment, folder, ["bt-bench"]
        )
        said: list[str] = []
        lines = Watched(said.append, watch)
        try:
            return run_sweep(request, places[0].runner, lines, places[1:]), said
        finally:
            go.said = said

    return go


def figures(results: list[VariantResult]) -> list:
    """All that a run on any devices has in common with one on a single device."""
    return [
        (result.variant.name, result.complete, result.crashes, [
            case.model_copy(update={"part": None, "seconds": 0.0}) for case in result.cases
        ])
        for result in results
    ]  # fmt: skip


def test_devices_share_the_cases_and_the_result_is_that_of_one(sweep, tmp_path):
    both = {A: FakeRunner(), B: FakeRunner()}
    results, said = sweep(both)
    serial, _ = sweep({A: FakeRunner()}, folder=tmp_path / "serial")
    assert figures(results) == figures(serial)
    assert serial[0].parts is None
    assert read_run(RunFolder(tmp_path / "run")) == results
    measured = both[A].measured + both[B].measured
    assert sorted(measured) == sorted(case.key for case in results[0].cases)
    for result in results:
        assert [part.environment.gpus[0].uuid for part in result.parts] == [A, B]
        assert all(part.calibration for part in result.parts)
        for case in result.cases:
            assert case.key in list(both.values())[case.part].measured
    assert sum("  GPU-aaaaaaaa: waits for a turn" in line for line in said) == 1
    assert any("  GPU-aaaaaaaa: step/case" in line for line in said) == bool(both[A].measured)


def test_all_operations_of_a_case_are_of_one_device(sweep):
    results, _ = sweep({A: FakeRunner(), B: FakeRunner()}, 12)
    for result in results:
        assert len({(case.case, case.part) for case in result.cases}) == 12


def names_of_conformance() -> list[str]:
    log: list[str] = []
    checks = conformance_checks(make_spec(1), ARMS, lambda outcome: log.append(outcome.workload))
    for unit in checks.units:
        checks.do(FakeRunner(), unit)
    return [name.removeprefix("conformance:") for name in dict.fromkeys(log)]


@pytest.mark.parametrize("is_lost", [False, True])
def test_devices_share_the_conformance_workloads_and_no_case_comes_before_all(sweep, is_lost):
    """A workload that a device was lost with is checked by another one."""
    log, meeting = [], Barrier(2)
    both = [Conforming(log, meeting, is_lost=is_lost), Conforming(log, meeting)]
    results, _ = sweep(dict(zip((A, B), both, strict=True)))
    names = names_of_conformance()
    assert len(names) > 3
    assert sorted(log[: len(names)]) == sorted(names), "each once, before all cases"
    assert [bool(each.conformed) for each in both] == [not is_lost, True]
    assert all(result.complete for result in results)


def test_a_variant_that_fails_on_one_device_is_run_on_none(sweep):
    log, meeting = [], Barrier(2)
    crashing = Conforming(log, meeting, crashing=True)
    _, said = sweep({A: crashing, B: Conforming(log, meeting)})
    measured = [arms for _, *arms in (each for each in log if isinstance(each, tuple))]
    assert measured == [["baseline"]] * 12
    assert sum("fused: FAILED, and so will all of its cases" in line for line in said) == 1


def test_a_sweep_says_how_many_conformance_workloads_are_done(sweep):
    told = []
    sweep({A: FakeRunner()}, watch=told.append)
    told = [each for each in told if each.what == "conformance workloads"]
    count = len(names_of_conformance())
    assert [(each.done, each.rounds) for each in told] == [(n, count) for n in range(count)]


def test_a_lost_device_gives_its_case_back(sweep):
    """It has measured one operation of the case; another device measures all of it."""
    lost = FakeRunner(lost_at=1)
    rest = FakeRunner(after=lost)
    results, said = sweep({A: lost, B: rest})
    assert all(result.complete for result in results)
    case = lost.measured[0].partition("/")[2]
    assert sum(title.endswith(f"/{case}") for title in rest.measured) == 2
    assert {case.part for case in results[0].cases} == {1}
    assert len(results[0].cases) == 6 * len(OPERATIONS)
    assert any(
        f"GPU-aaaaaaaa is given up: no fresh worker could be started: no GPU to run on; another "
        f"device takes {case}" in line
        for line in said
    )


def test_a_device_that_is_lost_before_its_first_case_is_no_loss(sweep):
    results, said = sweep({A: FakeRunner(lost_at=-1), B: FakeRunner()})
    assert all(result.complete for result in results)
    assert any(line.endswith("GPU-aaaaaaaa is given up: it fell off") for line in said)


def test_a_case_that_ends_two_devices_ends_the_sweep(sweep, tmp_path):
    runners = {uuid: FakeRunner(lost_with="case3") for uuid in (A, B, "cccccccc")}
    with pytest.raises(WorkerError, match="no GPU to run on"):
        sweep(runners)
    assert sum(runner.lost.is_set() for runner in runners.values()) == 2
    results = read_run(RunFolder(tmp_path / "run"))
    assert not any(result.complete for result in results)
    assert not any(case.case == "case3" for case in results[0].cases)
    again, _ = sweep({A: FakeRunner(), B: FakeRunner()})
    assert all(result.complete for result in again)
    assert len(again[0].cases) == 12


def test_an_error_of_one_device_ends_all(sweep):
    with pytest.raises(UsageError, match="no space left"):
        sweep({A: FakeRunner(), B: FakeRunner(refuses=True)}, 200)


def test_a_run_goes_on_on_another_gpu_and_says_so(sweep):
    with pytest.raises(WorkerError):
        sweep({A: FakeRunner(lost_at=3)})
    other = FakeRunner()
    results, said = sweep({B: other})
    assert "begun on GPU-aaaaaaaa, and goes on on GPU-bbbbbbbb" in said[0]
    by_part = Counter(case.part for case in results[0].cases)
    assert by_part == {0: 2, 1: 10}, "the case that was begun is measured anew, whole"
    assert len(other.measured) == 10
    assert {arm.variant.name for arm in results} == set(ARMS)
    again, said = sweep({A: FakeRunner(), B: FakeRunner()})
    assert again[0].cases == results[0].cases
    assert not any("goes on" in line for line in said)


def test_a_run_goes_on_on_the_same_gpu_without_parts(sweep):
    with pytest.raises(WorkerError):
        sweep({A: FakeRunner(lost_at=3)})
    results, said = sweep({A: FakeRunner()})
    assert all(result.parts is None and result.complete for result in results)
    assert not any("goes on" in line for line in said)


KILLS, COUNT = 20, 60
DRIVER = """\
import sys
from pathlib import Path
from support.fake_gpus import sweep_on
sweep_on(sys.argv[2:], int(sys.argv[1]), Path.cwd())
"""


def start(folder: Path, count: int) -> subprocess.Popen:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    with (folder / "said").open("a") as said:
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(count), A, B],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path},
            stdout=said,
            stderr=said,
        )


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.slow
def test_kills_at_random_moments_lose_nothing_and_repeat_nothing(sweep, tmp_path):
    """A worker is killed at most once while it measures a case: twice would blame a variant."""
    rng = random.Random(0)
    killed, seen = 0, 0
    hit = set()  # what a killed worker was at: it is begun again, perhaps much later
    process = start(tmp_path, COUNT)
    deadline = time.monotonic() + 1800  # for what hangs
    while time.monotonic() < deadline:
        time.sleep(rng.uniform(0, 0.2))
        begun = lines_of(tmp_path / BEGUN)
        if process.poll() is not None:
            if process.returncode == 0:
                break
            process = start(tmp_path, COUNT)
        elif killed < KILLS and len(begun) > seen + 4:
            worker, _, title = begun[-1].split(maxsplit=2)
            if title in hit:
                continue
            seen = len(begun)
            hit.add(title)
            pid = process.pid if killed % 5 == 2 else int(worker)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed += 1
    said = (tmp_path / "said").read_text()
    assert process.returncode == 0, said
    assert killed == KILLS, said
    assert lines_of(tmp_path / VIOLATIONS) == []
    assert {line.split()[1] for line in begun} == {A, B}
    results = read_run(RunFolder(tmp_path / "run"))
    serial, _ = sweep({A: FakeRunner()}, COUNT, tmp_path / "serial")
    without = [result.model_copy(update={"crashes": []}) for result in results]
    assert figures(without) == figures(serial)
    times = Counter(line.split()[2] for line in begun)
    assert sum(times.values()) - len(times) <= 2 * KILLS, "a kill costs a case at most"
