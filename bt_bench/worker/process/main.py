"""The process that has the device: it imports the variants and runs tasks.

The parent survives whatever happens to this process. This process ends with its parent, however the
parent ends.
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
    from bt_bench.worker.process.executor import Executor


def serve(connection: Connection, block: Any, setup: WorkerSetup) -> None:
    """Run tasks until the parent asks to end or the connection closes; the process's main function.

    First, the process sends a `Hello`. Then, for each `Request`, it sends any number of
    `RoundProgress` and an `Attempt`. A `Refusal` or a `Defect` may replace the `Hello` or an
    `Attempt`, and the process ends after it. If the setup asks for them, a `Traceback` is sent for
    each failure of a variant. Each of these is the content of a `Message`.
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
                from bt_bench.worker.tasks.failures import on_failure

                on_failure(lambda error: answers.send(Traceback(traceback_of(error))))
            hello, executor, worlds = set_up(setup, answers.end_if_closed)
            # Imported objects stay. Collections before each case would take 0.1 s or more for them.
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
            # Otherwise nanobind reports the remaining objects as leaks when the process ends.
            gc.unfreeze()


class _Answers:
    """The worker's end of the connection.

    A variant may fork and return in the child, too. That copy of the worker must not answer.

    Args:
        connection: the connection to the parent.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pid = os.getpid()
        self._number = 0

    def next_request(self) -> Request | None:
        """Wait for a request; return `None` when the parent asks this process to end."""
        request: Request | None = self._connection.recv()
        if request is not None:
            self._number = request.number
        return request

    def end_if_closed(self) -> None:
        """End the process if its connection has been closed, as by a variant.

        Call this while an arm is noted as running. The arm has closed the connection, and nothing
        can be sent any more.
        """
        try:
            os.fstat(self._connection.fileno())
        except OSError:
            os._exit(1)

    def send(self, content: Hello | RoundProgress | Traceback | Attempt | Refusal | Defect) -> None:
        """Answer the request; in a copy of the worker, end the process."""
        if os.getpid() != self._pid:
            os._exit(1)
        answer(self._connection, Message(self._number, content))


def _defect(error: BaseException) -> Defect:
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return Defect(traceback_of(error), f"{type(error).__name__}: {text_of(error)}{at}")


def set_up(
    setup: WorkerSetup, after_import: Callable[[], None] | None = None
) -> tuple[Hello, Executor, Worlds | None]:
    """Choose the device, import the variants, and make the executor.

    Args:
        setup: the worker's device, arms and plan.
        after_import: called after each variant's import, while the variant is still noted as
            running.

    Returns:
        The greeting for the parent, the executor, and the worlds of the sides if each side is kept
        to its tree.

    Raises:
        UsageError: if the device does not exist, or if a variant's file does not import, uses
            another tree, or changes the tools that checks and times rest on.
    """
    # Imported objects stay. Collections would take a quarter of the imports' time.
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
        from bt_bench.worker.measuring.bench import CpuBench, CudaBench
        from bt_bench.worker.measuring.host_time import host_turn
        from bt_bench.worker.process.executor import Executor

        suite = load_suite(setup.suite)
        driver_of(suite)  # all of the suite is loaded before anything of a variant
        gc.freeze()
    # It changes Triton, and does so before any side's cache is in place.
    bench = CudaBench() if kind == "cuda" else CpuBench()
    if kind == "cuda" or setup.takes_turns:
        bench.around = replace(bench.around, host_turn=host_turn)
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
    watch = tools = None
    if setup.watched:
        watch = StateWatch(worlds.environment if worlds is not None else ())
    elif setup.arms:
        explorer_of(suite).player()  # loads the code that plays scenarios, to be watched, too
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
