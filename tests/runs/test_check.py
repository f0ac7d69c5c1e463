"""Checks of all workloads, with a runner that finds nothing wrong."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from support.commands import TINY
from support.fake_gpus import environment_of

from bt_bench.config.load import load_config
from bt_bench.results import CheckReport, Reason, ReasonCode
from bt_bench.runs.check import Outcome, check_spec
from bt_bench.runs.sharing import Place
from bt_bench.worker import (
    CheckCase,
    Checked,
    CheckOutcome,
    Finished,
    RoundProgress,
    WorkerError,
)

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
    outcomes: list[Outcome] = []
    place = Place(process, environment_of("aaaa-0"))
    check_spec([place], spec, ARMS, outcomes.append, told.append)
    titles = [title for title, _ in process.asked]
    assert [(each.workload, each.variant, each.operation) for each in outcomes] == [
        (title, arm, operation) for title in titles for arm in ARMS for operation in spec.operations
    ]
    total = len(titles)
    assert told[0] == f"checking conformance:corners: 0 of {total} workloads checked"
    assert f"checking two, 2 of 7 steps: {total - 1} of {total} workloads checked" in told


def test_an_arm_that_crashes_has_no_further_conformance_workload(spec):
    process = Process(crashing="conformance:long")
    outcomes: list[Outcome] = []
    check_spec([Place(process, environment_of("aaaa-0"))], spec, ["first"], outcomes.append)
    asked = dict(process.asked)
    titles = list(asked)
    after = titles[titles.index("conformance:long") + 1 :]
    assert [asked[title] for title in after[:-2]] == [[]] * (len(after) - 2)
    assert (after[-2:], asked["one"], asked["two"]) == (["one", "two"], ["first"], ["first"])
    assert [each.reason for each in outcomes if each.workload == "conformance:long"] == [
        CRASHED,
        CRASHED,
    ]


CORNERS = "conformance:corners"  # the first workload


class Late(Process):
    """One of two devices; the one that takes the first workload waits until the rest is done.

    Args:
        rest: set when the rest is done.
        lost: what ends the device; empty: nothing.
    """

    def __init__(self, rest: Event, lost: str = "", crashing: str = "") -> None:
        super().__init__(crashing)
        self._rest, self._lost = rest, lost

    def run(self, task: Any, arms: Any, watcher: Any) -> Any:
        if task.title == CORNERS and not self._rest.is_set():
            assert self._rest.wait(20)
        elif task.title == "two":
            self._rest.set()
        if task.title == self._lost and not self.asked:
            raise WorkerError("no fresh worker could be started: no GPU to run on")
        return super().run(task, arms, watcher)

    def abandon(self) -> None:
        self._rest.set()


def checked(spec: Any, *processes: Process) -> tuple[list[Outcome], list[str], list[str]]:
    """The outcomes, the devices that are left, and what was said."""
    places = [Place(each, environment_of(f"{at}aaa-0")) for at, each in enumerate(processes)]
    outcomes: list[Outcome] = []
    said: list[str] = []
    left = check_spec(places, spec, ARMS, outcomes.append, warn=said.append)
    return outcomes, [place.name for place in left], said


def test_devices_share_the_workloads_and_one_that_is_lost_gives_its_workload_back(spec):
    serial, _, _ = checked(spec, Process())
    rest = Event()
    both = [Late(rest, lost=CORNERS) for _ in range(2)]
    outcomes, left, said = checked(spec, *both)
    assert outcomes == serial
    lost = next(at for at, each in enumerate(both) if not each.asked)
    assert left == [f"GPU-{1 - lost}aaa-0"]
    assert said == [
        f"GPU-{lost}aaa-0 is given up: no fresh worker could be started: no GPU to run on; another "
        f"device takes {CORNERS}"
    ]


def test_a_crash_counts_for_later_workloads_that_another_device_has_checked_before_it(spec):
    serial, _, _ = checked(spec, Process(crashing=CORNERS))
    rest = Event()
    outcomes, left, _ = checked(spec, *(Late(rest, crashing=CORNERS) for _ in range(2)))
    assert outcomes == serial
    assert len(left) == 2


def test_a_worker_that_a_thread_has_started_is_renewed_before_that_is_taken_for_a_crash(spec):
    class Replaced(Process):
        renewed = 0

        def run(self, task: Any, arms: Any, watcher: Any) -> Any:
            if task.title == "two":
                watcher.worker_replaced("it was killed")
            return super().run(task, arms, watcher)

        def renew(self) -> None:
            self.renewed += 1

    both = Replaced(), Replaced()
    checked(spec, *both)
    replaced = [each for each in both if "two" in dict(each.asked)]
    assert [each.renewed for each in replaced] == [1]
    assert sum(each.renewed for each in both) == 1
