"""Processes that are forked from one that has imported what they need, in place of spawned."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess, SpawnContext
from multiprocessing.reduction import DupFd
from pathlib import Path
from threading import Lock
from typing import Any
from unittest.mock import patch

# Before the first one is forked; neither torch nor kernels.
IMPORTED = ["support.fake_rounds", "support.fake_workers", "bt_bench.protocol.hosting"]
# What a scripted worker imports once it is told of its cases: 0.2 s.
WORKLOADS = (
    "bt_bench.suites.block_tables.suite",
    "bt_bench.suites.block_tables.workloads.serving.scheduler",
)
# What the process of a static census imports before any variant: 1.3 s.
CENSUS = ("torch", "triton", "bt_bench.worker.compiling.main")

# What a worker imports before it is told what to do: 3 s.
WORKER = (
    *("torch", "triton", "bt_bench.worker.process.executor", "bt_bench.worker.process.supervisor"),
    *("bt_bench.suites.block_tables.suite", "bt_bench.suites.block_tables.driver"),
)

_starting = Lock()  # `multiprocessing` knows one server at a time


class InEnvironment:
    """A main function that runs in the environment of the moment in which it was named."""

    def __init__(
        self, target: Callable[..., None], environment: dict[str, str] | None = None
    ) -> None:
        self._target, self._environment = target, dict(environment or os.environ)
        self._folder = Path.cwd()
        self._stderr: Any = None  # that of the server, unless it is another process's

    def printing_here(self) -> InEnvironment:
        """Have it print to the stderr of this process; call this while it is sent."""
        self._stderr = DupFd(2)
        return self

    def __call__(self, *args: Any) -> None:
        from bt_bench.base.processes import child

        if self._stderr is not None:
            os.dup2(self._stderr.detach(), 2)
        # Its parent is the process that forks; that one ends with the tests, and the connection,
        # at whose end it ends as well, is closed by then.
        child.end_with_parent = lambda pid: None
        os.chdir(self._folder)  # not that of the server
        os.environ.clear()
        os.environ.update(self._environment)
        self._target(*args)


class ForkedProcess(ForkServerProcess):
    """A process that a server forks; `multiprocessing` has one server, and here there are more."""

    def __init__(self, imported: tuple[str, ...], **options: Any) -> None:
        super().__init__(**options)
        self._imported = imported

    def _server(self) -> forkserver.ForkServer:
        return _server(self._imported)

    @staticmethod
    def _Popen(process: ForkedProcess) -> Any:  # noqa: N802
        connect = process._server().connect_to_new_process
        with _starting, patch("multiprocessing.forkserver.connect_to_new_process", connect):
            return ForkServerProcess._Popen(process)


class _Joined(forkserver.ForkServer):
    """The server of the tests, as a command of theirs connects to it."""

    def __init__(self, joined: tuple[Any, ...]) -> None:
        super().__init__()
        self._forkserver_address, self._forkserver_authkey = joined
        self._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)

    def ensure_running(self) -> None:
        """Leave it to the tests, which have begun it."""


class _ForkedForCommand(ForkedProcess):
    """A process of a command, that a server of the tests forks; prints to the command's stderr."""

    def _server(self) -> forkserver.ForkServer:
        return _Joined(self._imported)

    def __reduce__(self) -> Any:
        self._target.printing_here()
        return super().__reduce__()


def workers_forked(*, by_command: bool = False) -> str:
    """Return Python for a command of its own, which has the workers of the command forked.

    Args:
        by_command: from a process that the command starts, which costs 3 s but is as the command
            is, with whatever its start has changed; else from one of the tests.
    """
    context = f"imported={WORKER!r}"
    if not by_command:
        server = _server(WORKER)
        joined = server._forkserver_address, getattr(server, "_forkserver_authkey", None)
        context = f"joined={joined!r}"
    return (
        "import os, sys\n"
        'os.environ["TRITON_INTERPRET"] = "1"\n'  # as a worker sets it, before it imports Triton
        f"sys.path.append({str(Path(__file__).parents[1])!r})\n"
        "from bt_bench.base.processes import child\n"
        "from support.forked import ForkingContext\n"
        f"child.CONTEXT = ForkingContext('bt-bench worker', {context})\n"
    )


@cache
def _server(imported: tuple[str, ...]) -> forkserver.ForkServer:
    server = forkserver.ForkServer()
    server.set_forkserver_preload([*IMPORTED, *imported])
    path = os.pathsep.join(filter(None, sys.path))
    # Not where a test is, whose folder may have a module named torch: it would be imported first.
    with chdir("/"), patch.dict(os.environ, PYTHONPATH=path):
        if imported == CENSUS:
            os.environ.pop("TRITON_INTERPRET", None)  # as Triton is imported where it compiles
        server.ensure_running()
    return server


class ForkingContext:
    """Stands in for `multiprocessing.get_context("spawn")`: most of a second less per process.

    Args:
        only: names of the processes that are forked; all if there are none.
        imported: modules that they have imported from the start, beside `IMPORTED`.
        joined: where a server of the tests is, in a command of theirs.
    """

    def __init__(
        self, *only: str, imported: tuple[str, ...] = (), joined: tuple[Any, ...] = ()
    ) -> None:
        self._only, self._imported, self._joined = only, imported, joined
        self._spawning: SpawnContext = multiprocessing.get_context("spawn")
        self.Pipe = self._spawning.Pipe

    def Process(self, *, target: Callable[..., None], **options: Any):  # noqa: N802
        if self._only and options["name"] not in self._only:
            return self._spawning.Process(target=target, **options)
        if self._joined:
            return _ForkedForCommand(self._joined, target=InEnvironment(target), **options)
        _server(self._imported)  # here, or it would bear the mark of its first process
        return ForkedProcess(self._imported, target=InEnvironment(target), **options)


@contextmanager
def forked_workers() -> Iterator[None]:
    """Fork workers; only for those that load neither torch nor kernels."""
    with patch("bt_bench.base.processes.child.CONTEXT", ForkingContext(imported=WORKLOADS)):
        yield


@contextmanager
def forked_suites(*imported: str) -> Iterator[None]:
    """Fork the processes of users' suites, unless other processes are being replaced already.

    Args:
        imported: modules that all of these suites import, such as torch, which takes longer than
            most tests; they have it from the start.
    """
    from bt_bench.base.processes import child

    if child.CONTEXT is not multiprocessing.get_context("spawn"):
        yield
        return
    context = ForkingContext("bt-bench process of the suite", imported=imported)
    with patch.object(child, "CONTEXT", context):
        yield


@contextmanager
def forked_censuses() -> Iterator[None]:
    """Fork the processes that compile kernels; only where they are not what is tested."""
    with patch("bt_bench.worker.compiling.census._run", _run_census):
        yield


def _run_census(folder: Path, code: bool = False) -> tuple[str, str]:
    """Stand in for the function that runs the process, without its limit of time."""
    from bt_bench.base.processes.child import _without_main
    from bt_bench.worker.compiling.census import _environment

    _server(CENSUS)
    begun = InEnvironment(_compile, _environment(folder, code))
    process = ForkedProcess(CENSUS, target=begun, args=(folder, Path.cwd()))
    with _without_main():
        process.start()
    process.join()
    return tuple((folder / name).read_text(encoding="utf-8") for name in _STREAMS)


_STREAMS = ("stdout", "stderr")


def _compile(folder: Path, where: Path) -> None:
    from bt_bench.worker.compiling.main import main

    os.chdir(where)
    sys.path[:] = os.environ["PYTHONPATH"].split(os.pathsep)
    for number, name in enumerate(_STREAMS, 1):
        with (folder / name).open("wb") as file:
            os.dup2(file.fileno(), number)
    gc.freeze()
    main(folder)
