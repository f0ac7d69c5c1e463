"""Checks of all workloads, with a runner that finds nothing wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.commands import TINY

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

    def __init__(self, crashing: str = "") -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self._crashing = crashing

    def run(self, task: Any, arms: Any, watcher: Any) -> Any:
        self.asked.append((task.title, list(arms)))
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


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    return load_config(tmp_path / "tiny.yaml")


def test_it_is_told_which_workload_is_under_way_and_how_many_are_done(spec):
    process, told = Process(), []
    outcomes = list(check_spec(process, spec, ARMS, told.append))
    titles = [title for title, _ in process.asked]
    assert [(each.workload, each.variant, each.operation) for each in outcomes] == [
        (title, arm, operation) for title in titles for arm in ARMS for operation in spec.operations
    ]
    total = len(titles)
    assert told[0] == f"checking conformance:corners: 0 of {total} workloads checked"
    assert f"checking two, 2 of 7 steps: {total - 1} of {total} workloads checked" in told


def test_an_arm_that_crashes_has_no_further_conformance_workload(spec):
    process = Process(crashing="conformance:long")
    outcomes = list(check_spec(process, spec, ["first"]))
    asked = dict(process.asked)
    titles = list(asked)
    after = titles[titles.index("conformance:long") + 1 :]
    assert [asked[title] for title in after[:-2]] == [[]] * (len(after) - 2)
    assert (after[-2:], asked["one"], asked["two"]) == (["one", "two"], ["first"], ["first"])
    assert [each.reason for each in outcomes if each.workload == "conformance:long"] == [
        CRASHED,
        CRASHED,
    ]
