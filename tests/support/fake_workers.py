"""Workers that follow a script, for tests of the supervisor; they import neither torch nor Triton.

In a module of its own, since a fresh process imports it.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from bt_bench.base.processes import answer
from bt_bench.results.run.nouns import Reason, ReasonCode
from bt_bench.worker.machine.activity import Activity
from bt_bench.worker.tasks.messages import Defect, Hello, Message, Refusal, Request, Traceback
from bt_bench.worker.tasks.outcome import RoundProgress
from bt_bench.worker.tasks.runner import Failure, Success
from bt_bench.worker.tasks.tasks import Task

SPENT = Failure(Reason(code=ReasonCode.OUT_OF_MEMORY, message="no memory"), 0, True)
RAISED = Failure(Reason(code=ReasonCode.RAISED, message="raised"), 0, False)


@dataclass(frozen=True)
class Script(Task):
    """What each arm does, by name, and what happens after; the result is (pid, arms)."""

    does: dict[str, str] = field(default_factory=dict)
    after: str = "nothing"
    once: Path | None = None  # what this file exists for has been done, and is not done again

    @property
    def doing(self) -> str:
        return "while tested"


def serve(connection, block, setup) -> None:
    """Follows the scripts that it is sent."""
    activity = Activity(block)
    answer(connection, Message(0, Hello("cpu", os.getpid(), None)))
    while (request := connection.recv()) is not None:
        follow(request, connection, activity)


def serve_tracebacks(connection, block, setup) -> None:
    """Greets, and sends one traceback twice for each request, if tracebacks are wanted."""
    answer(connection, Message(0, Hello("cpu", os.getpid(), None)))
    while (request := connection.recv()) is not None:
        for _ in range(2 * setup.tracebacks):
            answer(connection, Message(request.number, Traceback("Traceback …\nValueError: 1\n")))
        answer(connection, Message(request.number, Success(list(request.arms))))


def serve_ahead(connection, block, setup) -> None:
    """Does what it is set up to do ahead, and then what it is asked."""
    if setup.ahead is not None:
        activity = Activity(block)
        answer(connection, Message(0, Hello("cpu", os.getpid(), None)))
        follow(Request(0, setup.ahead.task, setup.ahead.arms), connection, activity)
    else:
        serve(connection, block, setup)


def follow(request, connection, activity) -> None:
    """Does what a script says, and answers."""
    script, arms = request.task, list(request.arms)
    if script.once is not None and script.once.exists():
        script = Script()
    elif script.once is not None:
        script.once.touch()
    if script.after == "stale":
        for content in (RoundProgress(9, 9), Success("an answer to something else")):
            answer(connection, Message(request.number - 1, content))
    activity.expect({arm: place for place, arm in enumerate(arms)})
    failure = None
    for place, arm in enumerate(arms):
        with activity.running(arm):
            act(script.does.get(arm, "nothing"), connection, activity)
        failure = failure or _failure(script.does.get(arm), place)
    act(script.after, connection, activity)
    if script.after == "progress":
        answer(connection, Message(request.number, RoundProgress(1, 2)))
    answers = {
        "refuses": Refusal("no such thing"),
        "defect": Defect("Traceback …\n", "OSError: Too many open files (ours.py:3)"),
    }
    content = answers.get(script.after) or failure or Success((os.getpid(), arms))
    answer(connection, Message(request.number, content))


class Forged:
    """Makes a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def act(what: str, connection, activity) -> None:
    if what.startswith("forges"):
        connection.send_bytes(pickle.dumps(Forged(what.split(":")[1])))
    elif what.startswith("notes"):
        activity.expect({"it": int(what.split(":")[1])})
        activity.enter("it")
        os._exit(3)
    elif what == "kills":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "exits":
        os._exit(3)
    elif what == "hangs":
        time.sleep(60)
    elif what == "takes a while":
        time.sleep(0.5)
    elif what == "starts":
        subprocess.Popen(["sleep", "600"])
    elif what == "forks":
        if os.fork() == 0:
            time.sleep(600)  # with all that is open here
    elif what == "forks and is killed":
        act("forks", connection, activity)
        os.kill(os.getpid(), signal.SIGKILL)
    elif what.startswith("detaches"):
        _, seconds, environment = what.split(":")
        detach(seconds, {} if environment == "bare" else None)
    elif what.startswith("is killed"):
        detach(what.split(":")[1], None)
        os.kill(os.getpid(), signal.SIGKILL)


def detach(seconds: str, environment: dict[str, str] | None) -> None:
    """Starts a process as daemons start: forked twice, in a session of its own."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        subprocess.Popen(["/bin/sleep", seconds], env=environment)
        os._exit(0)
    os.waitpid(pid, 0)


def _failure(what: str | None, place: int) -> Failure | None:
    found = {"spends": SPENT, "raises": RAISED}.get(what or "")
    return found and Failure(found.reason, place, found.worker_is_spent)


def serve_that_dies_importing(connection, block, setup) -> None:
    """Dies while it imports the second variant."""
    activity = Activity(block)
    activity.expect({arm.name: place for place, arm in enumerate(setup.arms)})
    activity.enter(setup.arms[1].name)
    os.kill(os.getpid(), signal.SIGSEGV)


def serve_that_is_killed_once(connection, block, setup) -> None:
    """Is killed while it starts, unless a file beside that of the first arm says it has been."""
    once = Path(setup.arms[0].entry.path).with_suffix(".killed")
    if not once.exists():
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    serve(connection, block, setup)


def serve_that_forges(connection, block, setup) -> None:
    """Is made to greet with what would run something in its parent."""
    connection.send_bytes(pickle.dumps(Forged("there")))


def serve_that_refuses(connection, block, setup) -> None:
    """Has no such device."""
    answer(connection, Message(0, Refusal("no GPU to run on")))


def serve_only_as_chosen(connection, block, setup) -> None:
    """Greets if it was asked for one device in particular."""
    if setup.device == "cpu:chosen":
        serve(connection, block, setup)
    else:
        answer(connection, Message(0, Refusal(f"{setup.device} was not chosen")))


def serve_once(connection, block, setup) -> None:
    """Greets if it was asked for `auto`, and finds no device after."""
    if setup.device == "auto":
        serve(connection, block, setup)
    else:
        answer(connection, Message(0, Refusal("no GPU to run on")))
