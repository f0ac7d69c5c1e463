"""A process of our own that runs code of users, from its start to its end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

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

# It starts as a fresh interpreter: nothing that this process has loaded or opened is in it, and its
# memory lies elsewhere in each, which is part of what differs from process to process.
CONTEXT: SpawnContext | ForkServerContext = multiprocessing.get_context("spawn")
POLL_SECONDS = 0.2
# It may write a profiler's file when it ends; one that does not end is killed.
SECONDS_TO_END = 10.0
SECONDS_TO_DIE = 60.0


class Child:
    """One process that answers with data; neither it nor what it has started outlives this one.

    It is sent pickles, which it can read since it runs code of users anyway. What it sends is read
    by `unpack`, so that it can have nothing run here.

    Args:
        name: of the process.
        target: its main function, of a module; called with its end of the connection and `args`.
        args: further arguments.
    """

    def __init__(self, name: str, target: Callable[..., None], *args: Any) -> None:
        self._name = name
        self._connection, theirs = CONTEXT.Pipe()
        self._process: BaseProcess = CONTEXT.Process(
            target=_begin, args=(target, theirs, args), name=f"bt-bench {name}", daemon=True
        )
        with _ctrl_c_held_back(), marked() as self._mark:
            self._process.start()
        theirs.close()  # so that its end is seen here

    def is_alive(self) -> bool:
        """Return whether it still runs."""
        return self._process.is_alive()

    def send(self, message: object) -> None:
        """Send it something.

        Raises:
            OSError: if it is gone.
        """
        self._connection.send(message)

    def next_message(self, seconds: float) -> Any:
        """Wait for data that it sends.

        Args:
            seconds: how long.

        Returns:
            The data, or `None` if there was none in that time.

        Raises:
            EOFError: if it has ended, or has closed its connection.
            NoDataError: if it sends something else.
        """
        ready = wait([self._connection, self._process.sentinel], seconds)
        if self._connection in ready:
            try:
                packed = self._connection.recv_bytes()
            except OSError as error:
                raise EOFError from error
            return unpack(packed)
        # A copy of it may hold the sentinel open.
        if ready or not self._process.is_alive():
            raise EOFError
        return None

    def how_it_ended(self) -> str:
        """Wait for its end, and tell the signal or the exit code."""
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
        """Ask it to end, and give it some time."""
        started = self._started_by_it()
        try:
            self._connection.send(None)
        except OSError:
            return
        self._await_end(SECONDS_TO_END)
        kill(started)

    def abandon(self) -> None:
        """Kill it, and do not wait for its end."""
        started = self._started_by_it()
        self._connection.close()
        self._process.kill()
        kill(started)

    def kill(self) -> None:
        """Kill it if it is still there, reap it, and end what it has left behind."""
        self.abandon()
        self._await_end(SECONDS_TO_DIE)
        end_all(lambda: bearers_of(self._mark))

    def _await_end(self, seconds: float) -> None:
        """Wait until it has ended, for some time.

        `join` would wait for what it has forked too, which holds the sentinel open.
        """
        deadline = time.monotonic() + seconds
        while self._process.is_alive() and time.monotonic() < deadline:
            if wait([self._process.sentinel], POLL_SECONDS):
                time.sleep(0.01)  # code of a user may have closed it

    def _started_by_it(self) -> Collection[int]:
        """Return the processes that code of users has started; nobody else would end them."""
        pid = self._process.pid
        # Once it was waited for, its number may be another's.
        return descendants_of(pid) if pid and self._process.is_alive() else ()


def answer(connection: Connection, value: object) -> None:
    """Send data to the process that started this one.

    Raises:
        TypeError: if it is no data.
    """
    connection.send_bytes(pack(value))


def settle() -> None:
    """Prepare a process for code of users; the first thing that a main function calls.

    It ends with its parent, which also decides on Ctrl-C, since that reaches both. Whatever is
    printed goes to stderr, so that it cannot mix with data on the parent's stdout.
    """
    end_with_starter()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # it was blocked until here
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        os.dup2(2, 1)
    except OSError:  # there is no stderr
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if sys.stderr is not None:
        sys.stdout = sys.stderr


def end_with_starter() -> None:
    """End this process when the one that has started it ends."""
    parent = parent_process()
    if parent is not None and parent.pid is not None:
        end_with_parent(parent.pid)


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """Block Ctrl-C while a process starts, since it would end it with a traceback.

    A process begins with the signals blocked that its parent blocks; `settle` unblocks this one.
    """
    if not hasattr(signal, "pthread_sigmask"):  # no POSIX
        yield
        return
    resource_tracker.ensure_running()  # else the first start would, and unblock it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(target: Callable[..., None], connection: Connection, args: tuple[Any, ...]) -> None:
    """Main function of the process: what its code starts stays below it, until it ends."""
    adopt_orphans()
    target(connection, *args)
