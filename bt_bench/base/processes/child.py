"""A process of bt-bench's own that runs users' code, from its start to its end."""

from __future__ import annotations

import getpass
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from threading import Lock
from types import ModuleType
from typing import Any

from bt_bench.base.files import expanded
from bt_bench.base.inherited import hear_how_children_end
from bt_bench.base.processes.data import pack, unpack
from bt_bench.base.processes.lifetime import (
    adopt_orphans,
    bearers_of,
    descendants_of,
    end_all,
    end_with_parent,
    kill,
    marked,
)
from bt_bench.base.scratch import scratch_folder

# A fresh interpreter inherits nothing that this process has loaded or opened. Its memory layout is
# new as well, which is part of the variation between processes.
CONTEXT: SpawnContext | ForkServerContext = multiprocessing.get_context("spawn")
POLL_SECONDS = 0.2
# The child may write a profiler's file when it ends. If it does not end in time, it is killed.
SECONDS_TO_END = 10.0
SECONDS_TO_DIE = 60.0
_SAFE_PATH = "PYTHONSAFEPATH"
# While a process starts, this one's environment and modules are changed for it: threads that start
# processes at once would mark each other's.
_one_at_a_time = Lock()


class Child:
    """One process that answers with data; it and its descendants do not outlive this process.

    The child receives pickles, since it runs users' code anyway. Its answers are read by `unpack`,
    and cannot make anything run here.

    Args:
        name: the process's name.
        target: its main function, defined in a module; called with the child's end of the
            connection and `args`.
        args: further arguments.
    """

    def __init__(self, name: str, target: Callable[..., None], *args: Any) -> None:
        self._name = name
        self._connection, theirs = CONTEXT.Pipe()
        self._temporary = ExitStack()
        folder = None
        with suppress(OSError):  # it can do without, unless it needs temporary files itself
            folder = str(self._temporary.enter_context(scratch_folder("worker")))
        self._process: BaseProcess = CONTEXT.Process(
            target=_begin,
            args=(target, theirs, args, folder, os.environ.get(_SAFE_PATH)),
            name=f"bt-bench {name}",
            daemon=True,
        )
        with (
            _one_at_a_time,
            _not_from_here(),
            _ctrl_c_held_back(),
            _without_main(),
            marked() as self._mark,
        ):
            self._process.start()
        theirs.close()  # or the end of the connection would not be noticed here

    def is_alive(self) -> bool:
        """Return whether the process still runs."""
        return self._process.is_alive()

    def send(self, message: object) -> None:
        """Send an object to the process.

        Raises:
            OSError: if the process is gone.
        """
        self._connection.send(message)

    def next_message(self, seconds: float) -> Any:
        """Wait for data from the process.

        Args:
            seconds: the time to wait.

        Returns:
            The data, or `None` if none came in that time.

        Raises:
            EOFError: if the process has ended, or has closed its connection.
            NoDataError: if it sends anything other than data.
        """
        ready = wait([self._connection, self._process.sentinel], seconds)
        if self._connection in ready:
            try:
                packed = self._connection.recv_bytes()
            except OSError as error:
                raise EOFError from error
            return unpack(packed)
        # A fork of the process may hold the sentinel open.
        if ready or not self._process.is_alive():
            raise EOFError
        return None

    def how_it_ended(self) -> str:
        """Wait for the process to end, and describe its signal or exit code."""
        self._await_end(SECONDS_TO_DIE)
        code = self._process.exitcode
        if code is None:
            return f"the {self._name} closed its connection"
        if code >= 0:
            return f"the {self._name} ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = ", which the system also sends when memory runs out" if name == "SIGKILL" else ""
        return f"the {self._name} was ended by {name}{hint}"

    def end(self) -> None:
        """Ask the process to end, wait for some time, and kill the processes that it started."""
        started = self._started_by_it()
        try:
            self._connection.send(None)
        except OSError:
            return
        self._await_end(SECONDS_TO_END)
        kill(started)

    def abandon(self) -> None:
        """Kill the process without waiting for its end."""
        started = self._started_by_it()
        self._connection.close()
        self._process.kill()
        kill(started)

    def kill(self) -> None:
        """Kill the process if it still runs, reap it, and end everything that it left behind."""
        self.abandon()
        self._await_end(SECONDS_TO_DIE)
        end_all(lambda: bearers_of(self._mark))
        self._temporary.close()

    def _await_end(self, seconds: float) -> None:
        """Wait for the end of the process, for a limited time.

        `join` would also wait for its forks, which hold the sentinel open.
        """
        deadline = time.monotonic() + seconds
        while self._process.is_alive() and time.monotonic() < deadline:
            if wait([self._process.sentinel], POLL_SECONDS):
                time.sleep(0.01)  # users' code may have closed it

    def _started_by_it(self) -> Collection[int]:
        """Return the processes that users' code has started; nobody else would end them."""
        pid = self._process.pid
        # Once the process was reaped, its id may belong to another.
        return descendants_of(pid) if pid and self._process.is_alive() else ()


def answer(connection: Connection, value: object) -> None:
    """Send data to the process that started this one.

    Raises:
        TypeError: if the value is not data.
    """
    connection.send_bytes(pack(value))


def settle() -> None:
    """Prepare a process for users' code; a main function calls this first.

    The process ends with its parent. Ctrl-C reaches both, and the parent alone decides on it.
    Everything printed goes to stderr, and cannot mix with data on the parent's stdout.
    """
    end_with_starter()
    hear_how_children_end()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It was blocked until here, see `_ctrl_c_held_back`.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        os.dup2(2, 1)
    except OSError:  # there is no stderr
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if sys.stderr is not None:
        sys.stdout = sys.stderr


def end_with_starter() -> None:
    """End this process when the process that started it ends."""
    parent = parent_process()
    if parent is not None and parent.pid is not None:
        end_with_parent(parent.pid)


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Block Ctrl-C while a process starts, since it would end that process with a traceback.

    A process inherits the blocked signals of its parent; `settle` unblocks this one.
    """
    resource_tracker.ensure_running()  # else the first start would do so, and unblock Ctrl-C
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _not_from_here() -> Iterator[None]:
    """Keep a process that starts from importing modules of the working directory.

    Before it gets the path of this process, it looks there first: a user's `types.py` would be
    taken for the standard library's.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        _restore(before)


def _restore(safe_path: str | None) -> None:
    if safe_path is None:
        os.environ.pop(_SAFE_PATH, None)
    else:
        os.environ[_SAFE_PATH] = safe_path


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep a process that starts from importing the script or notebook that runs here.

    `multiprocessing` would run a user's script a second time there, with all that it imports.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")  # without a file, like that of `python -c`
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin(
    target: Callable[..., None],
    connection: Connection,
    args: tuple[Any, ...],
    temporary: str | None,
    safe_path: str | None,
) -> None:
    """Adopt orphans, which keeps all that this process starts below it, and run `target`.

    Temporary files go to a folder of the process's own, which is removed with it: compilers that
    are killed leave theirs.
    """
    _restore(safe_path)  # what users' code starts is their affair
    adopt_orphans()
    if temporary is not None:
        _keep_compiled(tempfile.gettempdir())
        os.environ["TMPDIR"] = tempfile.tempdir = temporary
        _give_a_home(temporary)
    target(connection, *args)


def _give_a_home(folder: str) -> None:
    """Have a folder as the home directory if none is known.

    Triton, for one, would make a folder named ~ in the working directory.
    """
    if not expanded("~").is_absolute():
        os.environ["HOME"] = folder


def _keep_compiled(folder: str) -> None:
    """Let Inductor's cache stay among the user's temporary files, where it is by default."""
    with suppress(OSError, KeyError):  # nobody has this user id
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/torchinductor_{user}")
