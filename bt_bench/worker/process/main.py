"""The process that has the device: it imports the variants and runs tasks.

The parent survives whatever happens to it, and it ends with its parent, however that ended.
"""

from __future__ import annotations

import gc
import os
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bt_bench.base import no_collection
from bt_bench.base.errors import BtBenchError, UsageError
from bt_bench.base.processes import answer, settle
from bt_bench.protocol import driver_of, load_suite, loaded_files
from bt_bench.variants import add_variants_path, ignore_interrupts, text_of, traceback_of
from bt_bench.worker.machine import activity
from bt_bench.worker.machine.interpreter import speed_up_interpreter
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
from bt_bench.worker.tasks.runner import Attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from bt_bench.variants import VariantEntry
    from bt_bench.worker.isolation.state_watch import ToolWatch
    from bt_bench.worker.isolation.worlds import Worlds
    from bt_bench.worker.measuring.bench import Bench
    from bt_bench.worker.process.executor import Executor


def serve(connection: Connection, block: Any, setup: WorkerSetup) -> None:
    """Runs tasks until the connection is closed; the main function of the process.

    Sends a `Hello` first. Then, for each `Request` that comes, any number of `RoundProgress` and
    an `Attempt`. In place of either a `Refusal` or a `Defect`. Each in a `Message`.
    """
    settle()
    ignore_interrupts()
    notes = activity.Activity(block)
    activity.use(notes)
    os.register_at_fork(after_in_child=notes.detach)
    answers = _Answers(connection)
    # The parent may be gone, or have closed the connection in the middle of an answer.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            if setup.tracebacks:
                _send_tracebacks(answers)
            hello, executor, worlds = set_up(setup, answers.end_if_closed)
            # What was imported stays. To look through it before each case takes 0.1 s and more.
            gc.collect()
            gc.freeze()
            answers.send(hello)
            if setup.ahead is not None:
                # A failure here happens again when the task is requested, and is reported then.
                with suppress(Exception):
                    executor.attempt(setup.ahead.task, setup.ahead.arms, lambda _: None)
            while (request := answers.next_request()) is not None:
                attempt = executor.attempt(request.task, request.arms, answers.send)
                if worlds is not None:
                    worlds.refuse()  # if a variant used another tree while it ran
                answers.send(attempt)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except BtBenchError as error:
            if setup.tracebacks and error.__cause__ is not None:
                answers.send(Traceback(traceback_of(error.__cause__)))
            answers.send(Refusal(str(error)))
        except BaseException as error:  # nothing that ends this process may look like a crash
            answers.send(_defect(error))
        finally:
            # Or nanobind takes what is left at the end for leaks.
            gc.unfreeze()


class _Answers:
    """The worker's end of the connection.

    A variant may fork, and return in the child too: a copy of the worker, which must not answer.

    Args:
        connection: to the parent.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pid = os.getpid()
        self._number = 0

    def next_request(self) -> Request | None:
        """Waits for a request; `None` when the connection is closed."""
        request: Request | None = self._connection.recv()
        if request is not None:
            self._number = request.number
        return request

    def end_if_closed(self) -> None:
        """Ends the process if the connection has been closed in it, as by a variant.

        To be called while an arm is noted: it is its doing, and nothing can be sent any more.
        """
        try:
            os.fstat(self._connection.fileno())
        except OSError:
            os._exit(1)

    def send(self, content: Hello | RoundProgress | Traceback | Attempt | Refusal | Defect) -> None:
        """Answers the request; in a copy of the worker, ends the process."""
        if os.getpid() != self._pid:
            os._exit(1)
        answer(self._connection, Message(self._number, content))


def _send_tracebacks(answers: _Answers) -> None:
    from bt_bench.worker.tasks.failures import on_failure

    on_failure(lambda error: answers.send(Traceback(traceback_of(error))))


def _defect(error: BaseException) -> Defect:
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return Defect(traceback_of(error), f"{type(error).__name__}: {text_of(error)}{at}")


def set_up(
    setup: WorkerSetup, after_import: Callable[[], None] | None = None
) -> tuple[Hello, Executor, Worlds | None]:
    """Chooses the device, imports the variants, and makes the executor.

    Args:
        setup: what the worker is for.
        after_import: called behind each variant's import, while it is still noted as running.

    Returns:
        The greeting for the parent, the executor, and the worlds of the sides, if these are kept
        to their trees.

    Raises:
        UsageError: for a device that is not there, for a variant file that does not import, and
            for one that uses another tree.
    """
    # All that these imports make stays. A quarter of their time would go into looking through it.
    with no_collection(collect_first=False):
        from bt_bench.worker.machine.device import choose_device

        # Before anything imports Triton.
        kind = choose_device(setup.device, interprets=bool(setup.arms))
        if kind == "cpu":
            speed_up_interpreter()

        from bt_bench.variants import load_apart, load_reference
        from bt_bench.worker.checking.plain_exploring import explorer_of
        from bt_bench.worker.isolation.state_watch import StateWatch, ToolWatch
        from bt_bench.worker.machine.environment import available_bytes, read_environment
        from bt_bench.worker.process.executor import Executor

        suite = load_suite(setup.suite)
        driver_of(suite)  # all of the suite is loaded before anything of a variant
        gc.freeze()
    bench = _bench(kind)  # with what it changes in Triton, and before anyone's cache is in place
    add_variants_path()
    worlds = None
    isolations = {arm.side: arm.isolation for arm in setup.arms if arm.isolation is not None}
    if isolations:
        from bt_bench.worker.isolation.worlds import Worlds

        load_reference(suite)  # the suite's own one, as for all revisions
        files = loaded_files(suite)
        kept = {side: replace(isolation, suite=files) for side, isolation in isolations.items()}
        worlds = Worlds(kept, {arm.name: arm.side for arm in setup.arms})
        worlds.put_up()
    notes = activity.current()
    notes.expect({arm.name: place for place, arm in enumerate(setup.arms)})
    watch = None
    tools = None
    if setup.watched:
        watch = StateWatch(worlds.environment if worlds is not None else ())
    elif setup.arms:
        explorer_of(suite).player()  # loads what plays scenarios, so that it is watched too
        tools = ToolWatch()
    if worlds is not None:
        notes.on_enter = worlds.enter
    copies = {}
    for arm in setup.arms:
        with notes.running(arm.name):
            copies[arm.name] = _loaded(arm.entry, setup.copies)
            if after_import is not None:
                after_import()
        if watch is not None:
            watch.imported(arm.name, copies[arm.name])
        if tools is not None:
            _refuse_tampering(tools, arm.name)
        if worlds is not None:
            worlds.refuse(arm.name)
    native = {name: getattr(copies[name][0], "native", None) for name in copies}
    hello = Hello(
        kind,
        read_environment(kind, suite.package, setup.device),
        available_bytes(kind),
        {name: value for name, value in native.items() if isinstance(value, bool)},
    )
    entries = {arm.name: arm.entry for arm in setup.arms}
    copy_of = cache(lambda name: load_apart(entries[name]))
    executor = Executor(copies, bench, setup.plan, copy_of, suite, watch, tools)
    return hello, executor, worlds


def _loaded(entry: VariantEntry, copies: int) -> list[type[Any]]:
    from bt_bench.variants import load_apart
    from bt_bench.worker.isolation.located import place_of, summary_of

    try:
        return [load_apart(entry) for _ in range(copies)]
    except MemoryError as error:
        message = f"the variant file does not import: {summary_of(error)} ({place_of(error)})"
        raise UsageError(f"{entry.path}: {message}") from error


def _refuse_tampering(tools: ToolWatch, arm: str) -> None:
    from bt_bench.worker.isolation.state_watch import TamperedError

    try:
        tools.refuse()
    except TamperedError as error:
        raise UsageError(f"variant {arm}, while imported: {error}") from error


def _bench(kind: str) -> Bench:
    from bt_bench.worker.measuring.bench import CpuBench, CudaBench

    return CudaBench() if kind == "cuda" else CpuBench()
