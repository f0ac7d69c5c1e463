"""The supervisor outlives its workers, and knows which arm was to blame."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import fake_workers
import pytest
from fake_workers import Script, serve

from bt_bench.catalogue import VariantEntry
from bt_bench.errors import UsageError
from bt_bench.model import Plan, ReasonCode
from bt_bench.supervisor import Supervisor
from bt_bench.tasks import WorkerError, WorkerSetup

ARMS = ["first", "second", "third"]
ENTRIES = tuple(VariantEntry(name, "", Path(f"{name}.py"), shipped=False) for name in ARMS)
SETUP = WorkerSetup("auto", ENTRIES, Plan(hang_seconds=0.5))


class Watching:
    """Keeps what it hears."""

    def __init__(self):
        self.rounds, self.replaced = [], []

    def round(self, progress):
        self.rounds.append(progress.done)

    def worker_replaced(self, why):
        self.replaced.append(why)


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def supervisor():
    """One for all: it has to survive every test."""
    with Supervisor(SETUP, serve) as entered:
        yield entered


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        (
            "kills",
            ReasonCode.CRASHED,
            "while tested: the worker was ended by SIGKILL, which the system also sends when "
            "memory runs out",
        ),
        ("exits", ReasonCode.CRASHED, "while tested: the worker ended with exit code 3"),
        (
            "hangs",
            ReasonCode.HUNG,
            "while tested: a call did not return within 0.5 s (plan.hang_seconds)",
        ),
        ("spends", ReasonCode.OUT_OF_MEMORY, "no memory"),
    ],
)
def test_the_culprit_is_left_out_and_a_fresh_worker_does_the_rest(fault, code, message, supervisor):
    before = supervisor.run(Script(), []).value[0]
    watching = Watching()
    finished = supervisor.run(Script({"second": fault}), ARMS, watching)
    pid, arms = finished.value
    assert arms == ["first", "third"]
    assert {arm: (reason.code, reason.message) for arm, reason in finished.failed.items()} == {
        "second": (code, message)
    }
    assert pid != before
    assert not is_there(before)
    assert watching.replaced == [message]


def test_an_arm_that_only_raises_costs_no_worker(supervisor):
    before = supervisor.run(Script(), []).value[0]
    watching = Watching()
    finished = supervisor.run(Script({"third": "raises"}), ARMS, watching)
    assert finished.value == (before, ["first", "second"])
    assert list(finished.failed) == ["third"]
    assert watching.replaced == []


def test_each_culprit_is_tried_once(supervisor):
    watching = Watching()
    finished = supervisor.run(Script(dict.fromkeys(ARMS, "kills")), ARMS, watching)
    assert finished.value[1] == []
    assert list(finished.failed) == ARMS
    assert len(watching.replaced) == 3


def test_nobodys_crash_is_everybodys_and_ends_what_needs_no_arm(supervisor):
    with pytest.raises(WorkerError, match="ended by SIGKILL"):
        supervisor.run(Script(after="kills"), ARMS)
    assert supervisor.run(Script(), ARMS).failed == {}


def test_a_worker_killed_between_tasks_is_nobodys_fault(supervisor):
    before = supervisor.run(Script(), []).value[0]
    os.kill(before, signal.SIGKILL)
    while Path(f"/proc/{before}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    watching = Watching()
    finished = supervisor.run(Script(), ARMS, watching)
    assert finished.failed == {}
    assert watching.replaced == [
        "the worker was ended by SIGKILL, which the system also sends when memory runs out"
    ]


def test_progress_is_handed_on(supervisor):
    watching = Watching()
    supervisor.run(Script(after="progress"), ARMS, watching)
    assert watching.rounds == [1]


def test_errors_of_the_worker_are_raised_here(supervisor):
    with pytest.raises(UsageError, match="no such thing"):
        supervisor.run(Script(after="refuses"), ARMS)
    with pytest.raises(WorkerError, match="internal error in the worker"):
        supervisor.run(Script(after="defect"), ARMS)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_no_worker_is_left_behind(error):
    try:
        with Supervisor(SETUP, serve) as supervisor:
            pid = supervisor.run(Script(), []).value[0]
            if error is not None:
                raise error
    except KeyboardInterrupt:
        pass
    assert not is_there(pid)


def test_a_variant_file_that_ends_the_worker_is_named():
    with (
        pytest.raises(UsageError, match=r"second\.py: the variant file does not import: .*SIGSEGV"),
        Supervisor(SETUP, fake_workers.serve_that_dies_importing),
    ):
        pass


def test_a_device_that_is_not_there():
    with (
        pytest.raises(UsageError, match="no GPU to run on"),
        Supervisor(SETUP, fake_workers.serve_that_refuses),
    ):
        pass


def test_a_fresh_worker_never_falls_back_to_another_device():
    with (
        pytest.raises(WorkerError, match="no fresh worker could be started: no GPU to run on"),
        Supervisor(SETUP, fake_workers.serve_once) as supervisor,
    ):
        supervisor.run(Script({"first": "kills"}), ARMS)
