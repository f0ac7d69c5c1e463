"""A supervisor that runs tasks in a worker process and survives whatever happens to that process.

A worker that dies or hangs is replaced, and the task is repeated without the arm to blame. This
side imports neither torch nor Triton and never touches a device.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from bt_bench.base.errors import UsageError
from bt_bench.base.names import resolved
from bt_bench.base.processes import Child, NoDataError
from bt_bench.protocol import run_suites_here
from bt_bench.results import Reason, ReasonCode
from bt_bench.worker.machine.activity import Activity, SharedBlock
from bt_bench.worker.process.culprits import run_without_culprits
from bt_bench.worker.tasks.messages import (
    Defect,
    Hello,
    Message,
    Refusal,
    Request,
    Traceback,
    WorkerSetup,
)
from bt_bench.worker.tasks.outcome import RoundProgress
from bt_bench.worker.tasks.runner import (
    Attempt,
    Failure,
    Finished,
    Setback,
    Success,
    Watcher,
    WorkerError,
)
from bt_bench.worker.tasks.tasks import ResultT, Task

Serve = Callable[[Connection, Any, WorkerSetup], None]

POLL_SECONDS = 0.2
# What stops this process for longer, such as Ctrl-Z or a paused container, stops the worker, too.
LONGEST_POLL_SECONDS = 2 * POLL_SECONDS
SECONDS_TO_IMPORT = 120.0  # a variant's file, with torch and Triton on a cold disk
# No variant can hang while no arm runs; this is the time to build a workload or to calibrate.
FEWEST_SECONDS_OF_OUR_OWN = 600.0


class Supervisor:
    """A worker process for the length of a `with` block, replaced whenever needed.

    Args:
        setup: the device, variants and plan.
        serve: the worker's main function, defined in a module; a fresh process imports it.
        on_traceback: called with the traceback of each failure of a variant, once for identical
            ones; `None`: none are sent.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        serve: Serve,
        on_traceback: Callable[[str], None] | None = None,
    ) -> None:
        self._setup = replace(setup, tracebacks=on_traceback is not None)
        self._serve = serve
        self._on_traceback = cache(on_traceback or (lambda _text: None))
        self._worker: _Worker | None = None
        self._hello: Hello | None = None
        self._lost: str | None = None  # why the last worker was replaced
        self._unasked: list[Setback] = []  # of workers that died between requests
        self._is_abandoned = False
        self.calls_made = 0  # of a scenario, before the last task that failed

    @property
    def hello(self) -> Hello:
        """The greeting of the first worker; available once the supervisor was entered."""
        if self._hello is None:
            raise RuntimeError("the supervisor was not entered")
        return self._hello

    def start(self) -> None:
        """Start the worker without waiting for it; `__enter__` waits."""
        self._worker = self._fresh()

    def __enter__(self) -> Supervisor:
        """Start the worker, unless `start` did, and wait for its greeting.

        Raises:
            UsageError: if the device does not exist, or a variant's file does not import.
            WorkerError: if the worker does not start.
        """
        if self._worker is None:
            self.start()
        assert self._worker is not None
        try:
            self._hello = self._greeted()
        except BaseException:
            self._discard()
            raise
        # Later workers must not fall back to another device. Nor must they begin a task ahead,
        # which may have ended the first worker.
        self._setup = replace(
            self._setup, device=resolved(self._setup.device, self._hello.device), ahead=None
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the worker and wait for it; after an error, kill it at once."""
        if self._worker is not None and kind is None:
            self._worker.end()
        self._discard()

    def abandon(self) -> None:
        """Kill the worker without waiting for its end, and begin no other; `__exit__` waits.

        Another thread may wait for a task meanwhile: its `run` raises.
        """
        self._is_abandoned = True
        worker = self._worker
        if worker is not None:
            worker.abandon()

    def close(self) -> None:
        """Kill the worker, entered or not, if it still runs, and wait for its end."""
        self.abandon()
        self._discard()

    def run(
        self, task: Task[ResultT], arms: Sequence[str], watcher: Watcher | None = None
    ) -> Finished[ResultT]:
        """Run a task with some arms; leave out the arms that break it.

        When a worker dies for the first time, it is replaced and the task tried again before an arm
        is blamed.

        Raises:
            UsageError: if a workload cannot be built.
            WorkerError: if the task fails even without any arm, or no worker can be started.
        """
        try:
            finished = run_without_culprits(
                arms, lambda remaining: self._attempt(task, remaining, watcher)
            )
            unasked, self._unasked = self._unasked, []
            return finished.after(unasked)
        except BaseException:
            self._discard()
            raise

    def _attempt(self, task: Task[Any], arms: Sequence[str], watcher: Watcher | None) -> Attempt:
        worker = self._living(watcher)
        outcome = worker.do(task, list(arms), watcher)
        if isinstance(outcome, Failure):
            self.calls_made = worker.calls_made
        if isinstance(outcome, Failure) and outcome.worker_is_spent:
            self._lost = outcome.reason.message
            self._discard()
        return outcome

    def renew(self) -> None:
        """End the worker; a fresh one does the next task."""
        self._lost = "a fresh one was asked for"
        self._discard()

    def _living(self, watcher: Watcher | None) -> _Worker:
        """Return the worker, or a fresh one if it is gone."""
        if self._is_abandoned:
            raise WorkerError("the worker was abandoned")
        worker = self._worker
        if worker is not None and not worker.is_alive():
            self._lost = worker.how_it_ended()
            self._unasked.append(worker.unasked())
            self._discard()
            worker = None
        if worker is None:
            self._worker = self._fresh()
            try:
                self._greeted()
            except UsageError as error:
                raise WorkerError(f"no fresh worker could be started: {error}") from error
            worker = self._worker
            if watcher is not None:
                watcher.worker_replaced(self._lost or "the worker was gone")
        return worker

    def _fresh(self) -> _Worker:
        return _Worker(self._setup, self._serve, self._on_traceback)

    def _greeted(self) -> Hello:
        """Wait for a new worker's greeting; if a variant's file ends it, name that variant.

        A worker that dies may have been killed from outside, and is replaced once.
        """
        assert self._worker is not None
        answer = self._worker.await_answer("while imported", None, SECONDS_TO_IMPORT)
        if isinstance(answer, Failure) and answer.reason.code is ReasonCode.CRASHED:
            arm = None if answer.place is None else self._setup.arms[answer.place].name
            died = Setback(answer.reason, arm)
            self._discard()
            self._worker = self._fresh()
            answer = self._worker.await_answer("while imported", None, SECONDS_TO_IMPORT)
            self._unasked.append(died)
        if isinstance(answer, Hello):
            return answer
        if isinstance(answer, Failure) and answer.defect is not None:
            raise WorkerError(f"{answer.defect}internal error in the worker; please report it")
        if isinstance(answer, Success):
            raise WorkerError("the worker answered out of turn; please report it")
        if answer.place is not None:
            path = self._setup.arms[answer.place].entry.path
            raise UsageError(f"{path}: the variant file does not import: {answer.reason.message}")
        if answer.reason.code is ReasonCode.TAMPERED:
            raise UsageError(answer.reason.message)
        raise WorkerError(f"the worker did not start: {answer.reason.message}")

    def _discard(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()


def _serve(connection: Connection, serve: Serve, block: Any, setup: bytes) -> None:
    """Run the worker's main function."""
    run_suites_here()
    serve(connection, block, pickle.loads(setup))


class _Worker:
    """One worker process, from its start to its end."""

    def __init__(
        self, setup: WorkerSetup, serve: Serve, on_traceback: Callable[[str], None]
    ) -> None:
        self._on_traceback = on_traceback
        block = SharedBlock()
        self._hang_seconds = setup.plan.hang_seconds
        self._activity = Activity(block)
        self._number = 0  # of the last request
        self._count = len(setup.arms)  # of arms that may be noted
        self._ahead = setup.ahead  # until the first request
        # Parameters of workloads are unpickled only in a process that may run suites.
        self._child = Child("worker", _serve, serve, block, pickle.dumps(setup))
        self.is_alive = self._child.is_alive
        self.how_it_ended = self._child.how_it_ended
        self.end = self._child.end
        self.abandon = self._child.abandon
        self.kill = self._child.kill

    def do(self, task: Task[Any], arms: list[str], watcher: Watcher | None) -> Attempt:
        """Run a task in the worker; return a failure if the worker does not survive it."""
        self._number += 1
        self._ahead = None
        self._count = len(arms)
        try:
            self._child.send(Request(self._number, task, tuple(arms)))
        except OSError:
            return self._died(task.doing)
        answer = self.await_answer(task.doing, watcher, self._hang_seconds)
        if isinstance(answer, Hello):
            raise WorkerError("the worker answered out of turn; please report it")
        return answer

    def await_answer(
        self, doing: str, watcher: Watcher | None, hang_seconds: float
    ) -> Hello | Success[Any] | Failure:
        """Wait for an answer, for the end of the process, or until it hangs.

        Args:
            doing: the activity, for the reason.
            watcher: receives progress.
            hang_seconds: the time limit for one call of a variant.

        Raises:
            UsageError: if the worker refuses the task or the setup.
            WorkerError: for an invalid answer.
        """
        notes, silent, before = self._activity.notes, 0.0, time.monotonic()
        while True:
            try:
                message = self._child.next_message(POLL_SECONDS)
            except EOFError:
                return self._died(doing)
            except NoDataError as error:
                return self._lied(doing, error)
            if message is not None:
                content = self._content(message)
                if isinstance(content, RoundProgress):
                    if watcher is not None:
                        watcher.round(content)
                elif isinstance(content, Traceback):
                    self._on_traceback(content.text)
                elif content is not None:
                    return self._checked(content, doing)
            now = time.monotonic()
            silent += min(now - before, LONGEST_POLL_SECONDS)
            before = now
            if message is not None or self._activity.notes != notes:
                notes, silent = self._activity.notes, 0.0
            elif silent > self._limit_seconds(hang_seconds):
                return self._hung(doing, hang_seconds)

    def _content(self, message: object) -> object:
        """Return a message's content, or `None` if it belongs to an earlier request."""
        if not isinstance(message, Message):
            raise WorkerError(f"the worker sent a {type(message).__name__}; please report it")
        return message.content if message.number == self._number else None

    def unasked(self) -> Setback:
        """Describe the end of a process that died without a request since its last answer."""
        place, ahead = self._place, self._ahead
        doing = "between two tasks" if ahead is None else ahead.task.doing
        reason = Reason(code=ReasonCode.CRASHED, message=f"{doing}: {self.how_it_ended()}")
        arms = () if ahead is None else ahead.arms
        return Setback(reason, arms[place] if place is not None and place < len(arms) else None)

    @property
    def calls_made(self) -> int:
        """The number of a scenario's calls so far, from a note that variants can change."""
        return max(0, self._activity.calls)

    @property
    def _place(self) -> int | None:
        """The place of the arm whose code runs, from a note in shared memory."""
        return self._known(self._activity.place)

    def _known(self, place: object) -> int | None:
        """Return a place from the worker if an arm has it, else `None`: variants can forge it."""
        return place if isinstance(place, int) and 0 <= place < self._count else None

    def _limit_seconds(self, hang_seconds: float) -> float:
        if self._place is not None:
            return hang_seconds
        return max(hang_seconds, FEWEST_SECONDS_OF_OUR_OWN)

    def _died(self, doing: str) -> Failure:
        place = self._place
        reason = Reason(code=ReasonCode.CRASHED, message=f"{doing}: {self.how_it_ended()}")
        return Failure(reason, place, worker_is_spent=True)

    def _lied(self, doing: str, error: NoDataError) -> Failure:
        message = (
            f"{doing}: the worker was made to send a message that bt-bench does not send: {error}"
        )
        reason = Reason(code=ReasonCode.TAMPERED, message=message)
        return Failure(reason, self._place, worker_is_spent=True)

    def _hung(self, doing: str, hang_seconds: float) -> Failure:
        place, limit = self._place, self._limit_seconds(hang_seconds)
        what = "the worker made no progress" if place is None else "a call did not return"
        setting = "" if place is None else " (plan.hang_seconds)"
        reason = Reason(
            code=ReasonCode.HUNG, message=f"{doing}: {what} within {limit:g} s{setting}"
        )
        return Failure(reason, place, worker_is_spent=True)

    def _checked(self, message: object, doing: str) -> Hello | Success[Any] | Failure:
        """Return an answer, or raise the error that it stands for."""
        if isinstance(message, Failure):
            return replace(message, place=self._known(message.place))
        if isinstance(message, (Hello, Success)):
            return message
        if isinstance(message, Refusal):
            raise UsageError(message.text)
        if isinstance(message, Defect):
            what = f"{doing}, in bt-bench's own code: {message.summary}"
            reason = Reason(code=ReasonCode.RAISED, message=what)
            return Failure(reason, None, worker_is_spent=True, defect=message.text)
        raise WorkerError(f"the worker sent a {type(message).__name__}; please report it")
