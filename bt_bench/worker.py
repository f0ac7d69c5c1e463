"""The process that has the device: it imports the variants and does what it is asked to.

Whatever happens to it, the parent goes on; and it ends with its parent, however that ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from functools import cache
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from bt_bench import activity
from bt_bench.errors import BtBenchError
from bt_bench.outcome import RoundProgress
from bt_bench.tasks import Defect, Hello, Refusal, WorkerSetup

if TYPE_CHECKING:
    from bt_bench.executor import Executor
    from bt_bench.measuring.case import Bench


def serve(connection: Connection, block: Any, setup: WorkerSetup) -> None:
    """Does tasks until the connection is closed; the main function of the process.

    Sends a `Hello` first. Then, for each pair of a task and its arms that comes, any number of
    `RoundProgress` and an `Attempt`. In place of either a `Refusal` or a `Defect`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both: the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _print_to_stderr()
    activity.use(activity.Activity(block))
    # The parent may be gone, or have closed the connection in the middle of an answer.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            hello, executor = set_up(setup)
            connection.send(hello)
            while (request := connection.recv()) is not None:
                task, arms = request
                connection.send(executor.attempt(task, arms, _sender(connection)))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except BtBenchError as error:
            connection.send(Refusal(str(error)))
        except Exception:
            connection.send(Defect(traceback.format_exc()))


def set_up(setup: WorkerSetup) -> tuple[Hello, Executor]:
    """Chooses the device, imports the variants, and makes what does the tasks.

    Raises:
        UsageError: for a device that is not there, and for a variant file that does not import.
    """
    from bt_bench.device import choose_device

    kind = choose_device(setup.device)  # before anything imports Triton

    from bt_bench.catalogue import load_apart
    from bt_bench.environment import available_bytes, read_environment
    from bt_bench.executor import Executor

    notes = activity.current()
    notes.expect({entry.name: place for place, entry in enumerate(setup.variants)})
    classes = {}
    for entry in setup.variants:
        with notes.running(entry.name):
            classes[entry.name] = load_apart(entry)
    hello = Hello(kind, read_environment(kind), available_bytes(kind))
    entries = {entry.name: entry for entry in setup.variants}
    copy_of = cache(lambda name: load_apart(entries[name]))
    return hello, Executor(classes, _bench(kind), setup.plan, copy_of)


def _bench(kind: str) -> Bench:
    from bt_bench.measuring.case import CpuBench, CudaBench

    return CudaBench() if kind == "cuda" else CpuBench()


def _sender(connection: Connection) -> Any:
    def send(progress: RoundProgress) -> None:
        connection.send(progress)

    return send


def _print_to_stderr() -> None:
    """What variants print must not get between the data on the parent's stdout."""
    try:
        os.dup2(2, 1)
    except OSError:  # there is no stderr
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if sys.stderr is not None:
        sys.stdout = sys.stderr


def _end_with_parent() -> None:
    """Ends this process when its parent has ended, whatever is under way; costs nothing until."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)
