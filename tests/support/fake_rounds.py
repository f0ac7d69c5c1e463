"""Workers that take process-rounds by a script, for tests of the gate; neither torch nor Triton.

The script is `script.json` in the folder of the variants' files: per variant `us`, the value of all
its series, `paths`, the launch paths that it has (`jit` if left out), and `fault`, what happens to
it when (`raises`, `kills`, `kills_once` in `check`, `prepare` or `measure`; `crashes_once` says so
and kills nothing), or what it is wrong on or lacks a feature for (`check one`, `lacks one`). What
workers do is appended to `log`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from bt_bench.results.case import CheckReport
from bt_bench.results.nouns import Reason, ReasonCode
from bt_bench.worker.activity import Activity
from bt_bench.worker.culprits import run_without_culprits
from bt_bench.worker.tasks import (
    CheckCase,
    CheckConformance,
    Checked,
    CheckOutcome,
    Failure,
    Hello,
    MeasureRound,
    Message,
    PrepareRound,
    Refusal,
    RoundValue,
    Success,
)
from support.factories import make_environment, make_workload

PASSED = CheckOutcome(CheckReport(steps=1, buffers=["slot_mappings"]), None)
LACKING = CheckOutcome(None, Reason(code=ReasonCode.UNSUPPORTED, message="lacks windows"))
WRONG = CheckOutcome(None, Reason(code=ReasonCode.WRONG_RESULT, message="slot 3 is 17"))


def serve(connection, block, setup) -> None:
    """Does the tasks that it is sent."""
    worker = _Worker(setup, Activity(block))
    for entry in setup.variants:
        if worker.script.get(entry.name, {}).get("fault") == "import":
            connection.send(
                Message(0, Refusal(f"{entry.path}:1: the variant file does not import"))
            )
            return
    connection.send(Message(0, Hello("cpu", make_environment("cpu", cpu_affinity=4), None)))
    if setup.ahead is not None:
        worker.log("ahead")
    while (request := connection.recv()) is not None:
        connection.send(Message(request.number, worker.answer(request.task, request.arms)))


class InProcess:
    """Stands in for the supervisor: follows the script here, which saves starting processes."""

    def __init__(self, setup, _serve):
        self._setup = setup
        self.hello = Hello("cpu", make_environment("cpu", cpu_affinity=4), None)

    def start(self):
        self._worker = _Worker(self._setup, Activity())

    def __enter__(self):
        return self

    def run(self, task, arms, watcher=None):
        return run_without_culprits(arms, lambda remaining: self._worker.answer(task, remaining))

    def abandon(self):
        """There is nothing to kill."""

    def __exit__(self, *error):
        """There is nothing to end."""


class _Worker:
    def __init__(self, setup, activity):
        self.folder = Path(setup.variants[0].path).parent
        self.script = json.loads((self.folder / "script.json").read_text())
        self.plan = setup.plan
        self.activity = activity

    def log(self, what):
        """One line, written at once: several processes write."""
        with (self.folder.parent / "log").open("a") as file:
            file.write(f"{self.folder.name} {os.getpid()} {what}\n")

    def answer(self, task, arms):
        self.activity.expect({arm: place for place, arm in enumerate(arms)})
        match task:
            case CheckConformance() | CheckCase():
                return self.go_wrong("check", arms) or self.check(task, arms)
            case PrepareRound():
                return self.go_wrong("prepare", arms) or self.prepared()
            case MeasureRound():
                return self.go_wrong("measure", arms) or self.measured(task, arms)

    def check(self, task, arms):
        outcomes = {f"check {task.title}": WRONG, f"lacks {task.title}": LACKING}
        found = {
            (arm, operation): outcomes.get(self.fault(arm), PASSED)
            for arm in arms
            for operation in task.operations
        }
        case = isinstance(task, CheckCase)
        return Success(Checked(make_workload(), found) if case else found)

    def prepared(self):
        self.log("prepared")
        return Success(None)

    def measured(self, task, arms):
        self.log("begins")
        time.sleep(0.01)
        values = tuple(
            RoundValue(unit.operation, unit.case.name, arm, series, self.us(arm))
            for unit in task.units
            for arm in arms
            if arm in unit.variants
            for series in unit.series
            if series.launch_path in self.script[arm].get("paths", ["jit"])
        )
        self.log("ends")
        return Success(values)

    def us(self, arm):
        """What the script says, and a little that no two processes share."""
        return self.script[arm]["us"] * (1 + 0.001 * (self.plan.seed * 7919 % 11) / 11)

    def fault(self, arm):
        return self.script.get(arm, {}).get("fault", "")

    def go_wrong(self, where, arms):
        for place, arm in enumerate(arms):
            what, _, when = self.fault(arm).partition(" ")
            if when != where:
                continue
            if what == "raises":
                reason = Reason(code=ReasonCode.RAISED, message=f"while {where}d: no luck")
                return Failure(reason, place, False)
            once = self.folder / "done"
            if what == "crashes_once" and not once.exists():
                once.touch()
                reason = Reason(code=ReasonCode.CRASHED, message=f"while {where}d: it died")
                return Failure(reason, place, True)
            if what == "kills" or (what == "kills_once" and not once.exists()):
                once.touch()
                self.activity.enter(arm)
                os.kill(os.getpid(), signal.SIGKILL)
        return None
