"""Checks of all workloads, with a runner that finds nothing wrong."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from support.commands import TINY

from bt_bench.base.errors import UsageError
from bt_bench.config.load import load_config
from bt_bench.results import CheckReport, Reason, ReasonCode
from bt_bench.runs.check import check_conformance, check_spec
from bt_bench.worker import (
    CheckCase,
    Checked,
    CheckOutcome,
    Finished,
    RoundProgress,
)


def test_conformance_says_how_many_of_its_workloads_are_done(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    spec = load_config(tmp_path / "tiny.yaml")
    told, ran = [], []

    def run(task, arms, watcher):
        ran.append(task.workload)
        return Finished({}, {})

    watcher = SimpleNamespace(round=told.append)
    assert list(check_conformance(SimpleNamespace(run=run), spec, [], watcher)) == []
    assert len(ran) > 3
    assert {each.what for each in told} == {"conformance workloads"}
    assert [(each.done, each.rounds) for each in told] == [(n, len(ran)) for n in range(len(ran))]


ARMS = ["first", "second", "third"]
CRASHED = Reason(code=ReasonCode.CRASHED, message="signal 11")


class Process:
    """A process that finds nothing wrong, unless told to; keeps what it is asked."""

    def __init__(self, crashing: str = "", refused: str = "", hanging: str = "") -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self._crashing, self._refused, self._hanging = crashing, refused, hanging
        self._is_over = Event()

    def run(self, task: Any, arms: Any, watcher: Any) -> Any:
        self.asked.append((task.title, list(arms)))
        if task.title == self._refused:
            raise UsageError("cannot be built")
        if task.title == self._hanging:
            assert self._is_over.wait(60)
            raise RuntimeError("abandoned")
        watcher.round(RoundProgress(2, 7, "checking"))
        failed = {arm: CRASHED for arm in arms if task.title == self._crashing}
        found: Any = {
            (arm, operation): CheckOutcome(CheckReport(steps=1, buffers=[]), None)
            for arm in arms
            for operation in task.operations
        }
        if isinstance(task, CheckCase):
            found = Checked(SimpleNamespace(), found)
        return Finished(found, failed)

    def abandon(self) -> None:
        self._is_over.set()


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    return load_config(tmp_path / "tiny.yaml")


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_arms_take_turns_among_processes_and_are_told_in_order(spec, threads):
    """Each has all workloads in one process, in the same order."""
    processes, told = [Process(), Process()], []
    outcomes = list(check_spec(processes, spec, ARMS, threads, told.append))
    first, second = (process.asked for process in processes)
    assert [title for title, _ in first] == [title for title, _ in second]
    assert {tuple(arms) for _, arms in first} == {("first", "third")}
    assert {tuple(arms) for _, arms in second} == {("second",)}
    operations = list(spec.operations)
    assert [(each.workload, each.variant, each.operation) for each in outcomes] == [
        (title, arm, operation) for title, _ in first for arm in ARMS for operation in operations
    ]
    total = len(ARMS) * len(first)
    assert told[0].endswith(f"on conformance:corners: 0 of {total} checked")
    assert any("checking first, third on two, 2 of 7 steps: " in each for each in told)
    assert told[-1].endswith(f": {total} of {total} checked")


def test_an_arm_that_crashes_has_no_further_conformance_workload(spec, threads):
    process = Process(crashing="conformance:long")
    outcomes = list(check_spec([process], spec, ["first"], threads))
    asked = dict(process.asked)
    titles = list(asked)
    after = titles[titles.index("conformance:long") + 1 :]
    assert [asked[title] for title in after[:-2]] == [[]] * (len(after) - 2)
    assert (after[-2:], asked["one"], asked["two"]) == (["one", "two"], ["first"], ["first"])
    assert [each.reason for each in outcomes if each.workload == "conformance:long"] == [
        CRASHED,
        CRASHED,
    ]


def test_an_error_in_one_process_ends_a_call_that_hangs_in_another(spec, threads):
    processes = [Process(refused="one"), Process(hanging="conformance:edges")]
    with pytest.raises(UsageError, match="cannot be built"):
        list(check_spec(processes, spec, ARMS, threads))


def test_so_does_whoever_wants_no_more(spec, threads):
    """As on Ctrl-C."""
    process = Process(hanging="conformance:edges")
    with closing(check_spec([process], spec, ARMS, threads)) as checks:
        next(checks)
    assert process.asked[-1][0] == "conformance:edges"
