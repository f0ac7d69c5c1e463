"""The supervisor outlives its workers, and knows which arm was to blame."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import fake_workers
from support.fake_workers import Script, serve
from support.forked import forked_workers
from support.processes import running_with, runs, wait_for

import bt_bench.worker.process.main
from bt_bench.base.errors import UsageError
from bt_bench.base.processes import answer, descendants_of, settle, unpack
from bt_bench.results.run.nouns import Reason, ReasonCode
from bt_bench.results.run.plan import Plan
from bt_bench.variants.catalogue import VariantEntry
from bt_bench.worker.process.culprits import run_without_culprits
from bt_bench.worker.process.supervisor import Supervisor
from bt_bench.worker.tasks.messages import Ahead, Hello, Message, WorkerSetup, arms_of
from bt_bench.worker.tasks.runner import Failure, Setback, Success, WorkerError

ARMS = ["first", "second", "third"]
ENTRIES = tuple(
    VariantEntry(name, "", Path(f"{name}.py"), shipped=False, package="bt_kernels") for name in ARMS
)
SETUP = WorkerSetup("auto", arms_of(ENTRIES), Plan(hang_seconds=0.5))


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


@pytest.fixture(scope="module", autouse=True)
def forked():
    """Tests of commands have workers that are spawned, as they are for users."""
    with forked_workers():
        yield


@pytest.fixture(scope="module")
def supervisor(forked):
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
    assert finished.setbacks == ()  # it came back, where it was tried again
    # A crash is confirmed first.
    assert watching.replaced == [message] * (2 if code is ReasonCode.CRASHED else 1)


def test_time_in_which_everything_was_stopped_is_no_silence(monkeypatch):
    """As by Ctrl-Z and `fg`, or in a container that was paused."""
    looks = iter(range(1000))
    real = time.monotonic
    clock = SimpleNamespace(monotonic=lambda: real() + 3600 * (next(looks) > 1))
    monkeypatch.setattr("bt_bench.worker.process.supervisor.time", clock)
    setup = replace(SETUP, plan=Plan(hang_seconds=5))
    with Supervisor(setup, serve) as supervisor:
        looks = iter(range(1000))
        finished = supervisor.run(Script({"second": "takes a while"}), ARMS)
    assert (finished.value[1], finished.failed) == (ARMS, {})
    assert next(looks) > 2


def test_an_answer_that_would_run_something_here_fails_its_arm(supervisor, tmp_path):
    there = tmp_path / "there"
    finished = supervisor.run(Script({"second": f"forges:{there}"}), ARMS)
    assert finished.value[1] == ["first", "third"]
    reason = finished.failed["second"]
    assert reason.code is ReasonCode.TAMPERED
    assert "made to send a message that bt-bench does not send: names pathlib" in reason.message
    assert not there.exists()


@pytest.mark.parametrize("place", [3, 2**40, -7])
def test_a_note_of_an_arm_that_there_is_not_is_none(supervisor, place):
    """Its cells are in memory that variants can write to."""
    with pytest.raises(WorkerError, match="ended with exit code 3"):
        supervisor.run(Script(after=f"notes:{place}"), ARMS)
    reasons = supervisor.run(Script({"third": f"notes:{place}"}), ARMS).failed
    assert list(reasons) == ARMS
    assert {reason.message.partition("; ")[2] for reason in reasons.values()} == {
        "it is not known in which variant"
    }


def test_an_arm_that_only_raises_costs_no_worker(supervisor):
    before = supervisor.run(Script(), []).value[0]
    watching = Watching()
    finished = supervisor.run(Script({"third": "raises"}), ARMS, watching)
    assert finished.value == (before, ["first", "second"])
    assert list(finished.failed) == ["third"]
    assert watching.replaced == []


@pytest.mark.parametrize("script", [{"does": {"second": "kills"}}, {"after": "kills"}])
def test_a_kill_from_outside_costs_nobody_anything(script, supervisor, tmp_path):
    watching = Watching()
    finished = supervisor.run(Script(**script, once=tmp_path / "done"), ARMS, watching)
    assert (finished.value[1], finished.failed) == (ARMS, {})
    assert len(watching.replaced) == 1
    # But it leaves a trace, since it need not have come from outside.
    (setback,) = finished.setbacks
    assert setback.arm == ("second" if "does" in script else None)
    assert (setback.reason.code, setback.reason.message) == (
        ReasonCode.CRASHED,
        watching.replaced[0],
    )


def test_an_error_of_bt_bench_is_tried_again(supervisor, tmp_path):
    watching = Watching()
    finished = supervisor.run(Script(after="defect", once=tmp_path / "done"), ARMS, watching)
    assert (finished.value[1], finished.failed) == (ARMS, {})
    assert [setback.reason.code for setback in finished.setbacks] == [ReasonCode.RAISED]
    assert watching.replaced == [
        "while tested, in bt-bench's own code: OSError: Too many open files (ours.py:3)"
    ]


def test_what_belongs_to_another_request_is_not_heard(supervisor):
    watching = Watching()
    finished = supervisor.run(Script(after="stale"), ARMS, watching)
    assert finished.value[1] == ARMS
    assert watching.rounds == []


def test_in_one_task_only_the_first_crash_is_confirmed(supervisor):
    watching = Watching()
    finished = supervisor.run(Script(dict.fromkeys(ARMS, "kills")), ARMS, watching)
    assert finished.value[1] == []
    assert list(finished.failed) == ARMS
    assert len(watching.replaced) == 4


def test_nobodys_crash_is_everybodys_and_ends_what_needs_no_arm(supervisor):
    with pytest.raises(WorkerError, match="ended by SIGKILL"):
        supervisor.run(Script(after="kills"), ARMS)
    assert supervisor.run(Script(), ARMS).failed == {}


def test_a_worker_killed_between_tasks_is_nobodys_fault(supervisor):
    before = supervisor.run(Script(), []).value[0]
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: not supervisor._worker.is_alive())
    watching = Watching()
    finished = supervisor.run(Script(), ARMS, watching)
    assert finished.failed == {}
    how = "the worker was ended by SIGKILL, which the system also sends when memory runs out"
    assert watching.replaced == [how]
    reason = Reason(code=ReasonCode.CRASHED, message=f"between two tasks: {how}")
    assert finished.setbacks == (Setback(reason, None),)
    assert supervisor.run(Script(), ARMS).setbacks == ()  # once is enough


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


@pytest.fixture
def spawned(monkeypatch):
    """Workers are spawned, as all workers of users are."""
    spawning = multiprocessing.get_context("spawn")
    monkeypatch.setattr("bt_bench.base.processes.child.CONTEXT", spawning)


def test_a_worker_that_is_spawned_is_replaced_as_well(spawned):
    with Supervisor(SETUP, serve) as supervisor:
        finished = supervisor.run(Script({"second": "kills"}), ARMS)
    assert finished.failed.keys() == {"second"}
    assert "the worker was ended by SIGKILL" in finished.failed["second"].message


@pytest.mark.parametrize(
    ("serving", "match"),
    [
        (
            fake_workers.serve_that_dies_importing,
            r"second\.py: the variant file does not import: .*SIGSEGV",
        ),
        (fake_workers.serve_that_forges, "while imported: the worker was made to send"),
        (fake_workers.serve_that_refuses, "no GPU to run on"),
    ],
    ids=["dies", "forges", "refuses"],
)
def test_a_worker_that_does_not_start_says_why(serving, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=match), Supervisor(SETUP, serving):
        pass
    assert not (tmp_path / "there").exists()  # what a greeting would have run here


def test_a_fresh_worker_never_falls_back_to_another_device():
    with (
        pytest.raises(WorkerError, match="no fresh worker could be started: no GPU to run on"),
        Supervisor(SETUP, fake_workers.serve_once) as supervisor,
    ):
        supervisor.run(Script({"first": "kills"}), ARMS)


def test_a_fresh_worker_takes_the_gpu_that_was_chosen():
    setup = replace(SETUP, device="cpu:chosen")
    with Supervisor(setup, fake_workers.serve_only_as_chosen) as supervisor:
        assert supervisor.run(Script({"first": "kills"}), ARMS).value


def test_errors_of_bt_bench_fail_the_arms_and_not_the_sweep():
    failure = Failure(
        Reason(code=ReasonCode.RAISED, message="in bt-bench's own code"), None, True, "Traceback"
    )
    asked = []

    def attempt(arms):
        asked.append(list(arms))
        return failure if arms else Success("without arms")

    finished = run_without_culprits(ARMS, attempt)
    assert finished.value == "without arms"
    assert finished.failed == dict.fromkeys(ARMS, failure.reason)
    assert asked == [ARMS, ARMS, []]


def test_a_crash_of_nobody_fails_all_and_says_so():
    failure = Failure(Reason(code=ReasonCode.CRASHED, message="it died"), None, True)
    finished = run_without_culprits(ARMS, lambda arms: failure if arms else Success(None))
    messages = {reason.message for reason in finished.failed.values()}
    assert messages == {"it died; it is not known in which variant"}


def crashes_in_turn(*places):
    """An attempt that crashes at these places of its arms, one after the other, and then not."""
    reason = Reason(code=ReasonCode.CRASHED, message="it died")
    left = list(places)
    return lambda arms: Failure(reason, left.pop(0), True) if left else Success(list(arms))


def test_a_crash_that_another_one_follows_leaves_a_trace():
    finished = run_without_culprits(ARMS, crashes_in_turn(0, 1))
    assert (finished.value, list(finished.failed)) == (["first", "third"], ["second"])
    assert [setback.arm for setback in finished.setbacks] == ["first"]


def test_a_crash_of_nobody_that_comes_back_as_somebodys_leaves_none():
    finished = run_without_culprits(ARMS, crashes_in_turn(None, 1))
    assert (list(finished.failed), finished.setbacks) == (["second"], ())


def test_a_crash_of_a_task_without_arms_leaves_a_trace():
    finished = run_without_culprits([], crashes_in_turn(None))
    assert [setback.arm for setback in finished.setbacks] == [None]


@pytest.mark.parametrize("ending", ["end", "abandon"])
def test_what_a_variant_has_started_ends_with_its_worker(ending):
    with Supervisor(SETUP, serve) as supervisor:
        pid, _ = supervisor.run(Script({"first": "starts"}), ARMS).value
        (child,) = descendants_of(pid)
        assert descendants_of(pid) == {child: "sleep"}
        if ending == "abandon":
            supervisor.abandon()
    wait_for(lambda: not runs(child))
    assert descendants_of(pid) == {}


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
@pytest.mark.parametrize("environment", ["same", "bare"])
def test_so_does_what_has_left_its_family(error, environment):
    seconds = f"600.{os.getpid()}1"
    try:
        with Supervisor(SETUP, serve) as supervisor:
            supervisor.run(Script({"first": f"detaches:{seconds}:{environment}"}), ARMS)
            assert len(running_with(seconds)) == 1
            if error is not None:
                raise error
    except KeyboardInterrupt:
        pass
    wait_for(lambda: not running_with(seconds))


@pytest.mark.parametrize("does", ["forks", "forks and is killed"])
def test_nobody_waits_for_what_a_variant_has_forked(does, spawned, monkeypatch):
    monkeypatch.setattr("bt_bench.base.processes.child.SECONDS_TO_END", 600.0)
    monkeypatch.setattr("bt_bench.base.processes.child.SECONDS_TO_DIE", 600.0)
    with Supervisor(SETUP, serve) as supervisor:
        finished = supervisor.run(Script({"second": does}), ARMS)
        assert list(finished.failed) == ["second"] * ("killed" in does)


def test_so_does_what_a_killed_worker_leaves(spawned):
    """All that is below a spawned worker has its environment."""
    seconds = f"600.{os.getpid()}2"
    with Supervisor(SETUP, serve) as supervisor:
        finished = supervisor.run(Script({"second": f"is killed:{seconds}"}), ARMS)
        assert list(finished.failed) == ["second"]
        assert running_with(seconds) == []
    assert not any(name.startswith("_BT_BENCH") for name in os.environ)


def test_processes_that_end_while_they_are_looked_at_are_left_out(monkeypatch):
    ended = str(2**22 + 1)  # above all that Linux gives
    names = ["self", ended, str(os.getpid())]
    monkeypatch.setattr(Path, "iterdir", lambda folder: (folder / name for name in names))
    assert descendants_of(os.getppid()).keys() == {os.getpid()}

    def nothing(_):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "iterdir", nothing)
    assert descendants_of(os.getppid()) == {}


class Parent:
    """The parent's end of a pipe that nobody reads."""

    def __init__(self):
        self.sent = []

    def send_bytes(self, message):
        self.sent.append(unpack(message))


def test_a_copy_of_the_worker_does_not_answer():
    answers = bt_bench.worker.process.main._Answers(Parent())
    answers.send("from the worker")
    pid = os.fork()
    if pid == 0:
        answers.send("from the copy")
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def serve_holding_the_interpreter(connection, block, setup):
    """As a worker whose variant never returns from C code that holds the interpreter."""
    settle()
    answer(connection, Message(0, Hello("cpu", os.getpid(), None)))
    ctypes.PyDLL(None).sleep(60)


def enter_and_tell(connection):
    with Supervisor(SETUP, serve_holding_the_interpreter) as supervisor:
        connection.send(supervisor.hello.environment)
        time.sleep(60)


def test_a_worker_that_is_stuck_ends_with_its_parent():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    parent = context.Process(target=enter_and_tell, args=(theirs,))
    parent.start()
    assert ours.poll(60)
    pid = ours.recv()
    parent.kill()
    parent.join()
    wait_for(lambda: not runs(pid))


def test_a_worker_can_be_started_ahead_and_abandoned():
    supervisor = Supervisor(SETUP, serve)
    supervisor.start()
    with supervisor as entered:
        pid, _ = entered.run(Script(), ARMS).value
        entered.abandon()
    assert not is_there(pid)


def test_a_task_in_another_thread_ends_when_its_worker_is_abandoned(tmp_path):
    patient = replace(SETUP, plan=Plan(hang_seconds=600))
    with Supervisor(patient, serve) as supervisor, ThreadPoolExecutor(1) as threads:
        pid = supervisor.run(Script(), ARMS).value[0]
        running = threads.submit(supervisor.run, Script({"first": "hangs"}), ARMS)
        wait_for(lambda: supervisor._worker._place is not None)
        supervisor.abandon()
        with pytest.raises(WorkerError, match="abandoned"):
            running.result(60)
        assert supervisor._worker is None  # no fresh one
    assert not is_there(pid)


def test_a_crash_before_a_worker_is_asked_is_that_of_the_arm_that_ran(tmp_path):
    setup = replace(SETUP, ahead=Ahead(Script({"second": "kills"}), tuple(ARMS)))
    with Supervisor(setup, fake_workers.serve_ahead) as supervisor:
        pid = int(supervisor.hello.environment)
        wait_for(lambda: not runs(pid))
        done = supervisor.run(Script(), ARMS)
    assert (done.value[1], done.failed) == (ARMS, {})
    (setback,) = done.setbacks
    assert setback.arm == "second"
    assert setback.reason.message.startswith("while tested: the worker was ended by SIGKILL")


def test_what_a_first_worker_does_ahead_its_successor_does_not(tmp_path):
    """It may be what ended the first one."""
    setups = []

    class Noting(Supervisor):
        def _discard(self):
            setups.append(self._setup)
            super()._discard()

    setup = replace(SETUP, ahead=Ahead(Script(), tuple(ARMS)))
    with Noting(setup, serve) as supervisor:
        done = supervisor.run(Script({"second": "kills"}, once=tmp_path / "once"), ARMS)
    assert done.failed == {}
    assert [setback.arm for setback in done.setbacks] == ["second"]
    assert [setup.ahead for setup in setups] == [None] * len(setups)


def test_tracebacks_are_passed_on_if_asked_for_and_equal_ones_once():
    shown: list[str] = []
    with Supervisor(SETUP, fake_workers.serve_tracebacks, shown.append) as supervisor:
        assert supervisor.run(Script(), ARMS).value == ARMS
        supervisor.run(Script(), ARMS)
    assert shown == ["Traceback …\nValueError: 1\n"]
    with Supervisor(SETUP, fake_workers.serve_tracebacks) as supervisor:
        assert supervisor.run(Script(), ARMS).value == ARMS


def test_a_worker_that_is_killed_while_it_starts_is_replaced_once(tmp_path):
    """It may have been killed from outside; what happened is told with the first task."""
    entry = VariantEntry("one", "", tmp_path / "one.py", shipped=False, package="bt_kernels")
    setup = WorkerSetup("auto", arms_of([entry]), Plan(hang_seconds=0.5))
    with Supervisor(setup, fake_workers.serve_that_is_killed_once) as supervisor:
        first = supervisor.run(Script(), ["one"])
        second = supervisor.run(Script(), ["one"])
        # And a later worker likewise.
        (tmp_path / "one.killed").unlink()
        third = supervisor.run(Script({"one": "kills"}, once=tmp_path / "done"), ["one"])
    (setback,) = first.setbacks
    assert setback.arm is None
    assert "while imported: the worker was ended by SIGKILL" in setback.reason.message
    assert second.setbacks == ()
    assert not third.failed
    assert "while imported" in third.setbacks[0].reason.message
