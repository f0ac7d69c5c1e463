"""Workers that take process-rounds by a script, for tests of the gate; neither torch nor Triton.

The script is `script.json` in the folder of the variants' files: per variant `us`, the value of all
its series, `factors` on it by case, `launches`, how many there are in a step (2 if left out),
`paths`, the launch paths that it has (`jit` if left out), `imports` and `changes`, what it changes
for the whole process when it is imported or measured, `influence`, what the head does to whoever
runs next, `visitors`, how many processes are on the GPU, `stops`, how often a quota stops it,
`ticks` of device clocks by method, and `fault`, what happens to it when (`lonely` where it is
imported beside another side, `raises`, `kills`, `kills_once` in `check`, `count`, `prepare` or
`measure`; `crashes_once` says so and kills nothing), or what it is wrong on or lacks a feature for
(`check one`, `lacks one`), and `falls_off`, a device that is lost when it is measured there. What
workers do is appended to `log`.
"""

from __future__ import annotations

import json
import os
import signal
import time
import zlib
from pathlib import Path

from bt_bench.base.processes import answer
from bt_bench.results.run.case import CheckReport, LaunchCensus, LaunchCount
from bt_bench.results.run.nouns import Method, Reason, ReasonCode
from bt_bench.worker.machine.activity import Activity
from bt_bench.worker.process.culprits import run_without_culprits
from bt_bench.worker.tasks.messages import Hello, Message, Refusal
from bt_bench.worker.tasks.runner import Failure, Success
from bt_bench.worker.tasks.tasks import (
    CheckCase,
    CheckConformance,
    Checked,
    CheckOutcome,
    CountLaunches,
    MeasureRound,
    PrepareRound,
    ReadChanges,
    RoundOutcome,
    RoundValue,
)
from support.factories import make_environment, make_workload
from support.fake_gpus import environment_of

PASSED = CheckOutcome(CheckReport(steps=1, buffers=["slot_mappings"]), None)
LACKING = CheckOutcome(None, Reason(code=ReasonCode.UNSUPPORTED, message="lacks windows"))
WRONG = CheckOutcome(None, Reason(code=ReasonCode.WRONG_RESULT, message="slot 3 is 17"))


def serve(connection, block, setup) -> None:
    """Does the tasks that it is sent."""
    worker = _Worker(setup, Activity(block))
    if worker.lost is not None and worker.lost.exists():
        answer(connection, Message(0, Refusal(f"no GPU to run on: {setup.device} is none")))
        return
    for arm in setup.arms:
        if worker.fault(arm.name) == "import" or (
            worker.fault(arm.name) == "lonely" and len({each.side for each in setup.arms}) > 1
        ):
            path = arm.entry.path
            answer(connection, Message(0, Refusal(f"{path}:1: the variant file does not import")))
            return
    answer(connection, Message(0, Hello("cpu", make_environment("cpu", cpu_affinity=4), None)))
    if setup.ahead is not None:
        worker.log("ahead")
    while (request := connection.recv()) is not None:
        answer(connection, Message(request.number, worker.answer(request.task, request.arms)))


class InProcess:
    """Stands in for the supervisor: follows the script here, which saves starting processes."""

    def __init__(self, setup, _serve, _on_traceback=None):
        self._setup = setup
        environment = make_environment("cpu", cpu_affinity=4)
        if setup.device.startswith("GPU-"):
            environment = environment_of(setup.device.removeprefix("GPU-"))
        self.hello = Hello("cpu", environment, None)

    def start(self):
        self._worker = _Worker(self._setup, Activity())

    def __enter__(self):
        return self

    def run(self, task, arms, watcher=None):
        return run_without_culprits(arms, lambda remaining: self._worker.answer(task, remaining))

    def abandon(self):
        """There is nothing to kill."""

    def close(self):
        """There is nothing to kill."""

    def __exit__(self, *error):
        """There is nothing to end."""


class _Worker:
    def __init__(self, setup, activity):
        folders = {arm.name: Path(arm.entry.path).parent for arm in setup.arms}
        scripts = {f: json.loads((f / "script.json").read_text()) for f in set(folders.values())}
        self.script = {arm.name: scripts[folders[arm.name]][arm.entry.name] for arm in setup.arms}
        self.folder = next(iter(folders.values()), None)  # a worker may have no arms
        self.folders = "+".join(dict.fromkeys(folder.name for folder in folders.values()))
        self.is_shared = len({arm.side for arm in setup.arms}) > 1
        self.plan, self.device = setup.plan, setup.device
        self.lost = self.folder and self.folder.parent / f"lost-{setup.device}"
        self.activity = activity

    def log(self, what):
        """One line, written at once: several processes write."""
        with (self.folder.parent / "log").open("a") as file:
            file.write(f"{self.folders} {os.getpid()} {what}\n")

    def answer(self, task, arms):
        self.activity.expect({arm: place for place, arm in enumerate(arms)})
        match task:
            case CheckConformance() | CheckCase():
                return self.go_wrong("check", arms) or self.check(task, arms)
            case CountLaunches():
                return self.go_wrong("count", arms) or self.counted(task, arms)
            case ReadChanges():
                return Success(
                    {
                        arm: (script["imports"],)
                        for arm, script in self.script.items()
                        if "imports" in script
                    }
                )
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

    def counted(self, task, arms):
        """As many launches of one kernel in each of two steps as the script says, or two."""
        return Success(
            {
                (arm, operation): LaunchCensus(
                    counted_by="interpreter",
                    steps=[self.launches(arm)] * 2,
                )
                for arm in arms
                for operation in task.operations
            }
        )

    def launches(self, arm):
        count = self.script[arm].get("launches", 2)
        return [LaunchCount(kind="kernel", name="copy", count=count)] if count else []

    def prepared(self):
        self.log("prepared")
        return Success(None)

    def measured(self, task, arms):
        self.log("begins")
        if any(self.script[arm].get("falls_off") == self.device for arm in arms):
            self.lost.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
        values = tuple(
            RoundValue(
                unit.operation,
                unit.case.name,
                arm,
                series,
                self.us(arm) * self.script[arm].get("factors", {}).get(unit.case.name, 1.0),
                self.harm(arm),
            )
            for unit in task.units
            for arm in arms
            if arm in unit.variants
            for series in unit.series
            if series.launch_path in self.script[arm].get("paths", ["jit"])
        )
        self.log("ends")
        changed = tuple(
            self.script[arm]["changes"] for arm in arms if "changes" in self.script[arm]
        )
        changes = {"": changed} if changed else {}
        visitors = max((self.script[arm].get("visitors", 0) for arm in arms), default=0)
        stops = max((self.script[arm].get("stops", 0) for arm in arms), default=0)
        ticks = {k: v for arm in arms for k, v in self.script[arm].get("ticks", {}).items()}
        by_method = {Method(name): tick for name, tick in ticks.items()}
        return Success(RoundOutcome(values, changes, 0.0, visitors, stops, by_method))

    def us(self, arm):
        """What the script says, and a little that no two arms and processes share."""
        return self.script[arm]["us"] * (1 + 0.001 * self.luck(arm))

    def luck(self, arm):
        """From 0 to 1, by the seed of the process."""
        return zlib.crc32(f"{self.plan.seed} {arm}".encode()) / 2**32

    def harm(self, arm):
        """The influence that the script gives; a little noise, since real ones have some."""
        share = self.script[arm].get("influence", 0.0)
        return share + 0.001 * self.luck(arm) if self.is_shared else None

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
            if what == "crashes_once" and self._is_first():
                reason = Reason(code=ReasonCode.CRASHED, message=f"while {where}d: it died")
                return Failure(reason, place, True)
            if what == "kills" or (what == "kills_once" and self._is_first()):
                self.activity.enter(arm)
                os.kill(os.getpid(), signal.SIGKILL)
        return None

    def _is_first(self) -> bool:
        """Returns whether no process was here before, whichever arm it imported first."""
        try:
            (self.folder.parent / "done").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
