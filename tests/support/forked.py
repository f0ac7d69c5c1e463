"""Processes that are forked from one that has imported what they need, in place of spawned."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver, popen_forkserver, reduction
from multiprocessing.context import ForkServerContext, ForkServerProcess, SpawnContext
from threading import Lock
from typing import Any

import pytest

# Before the first one is forked; neither torch nor kernels.
IMPORTED = ["support.fake_rounds", "support.fake_workers", "bt_bench.protocol.hosting"]


class InEnvironment:
    """A main function that runs in the environment of the moment in which it was named."""

    def __init__(self, target: Callable[..., None]) -> None:
        self._target, self._environment = target, dict(os.environ)

    def __call__(self, *args: Any) -> None:
        from bt_bench.processes import child

        # Its parent is the process that forks; that one ends with the tests, and the connection,
        # at whose end it ends as well, is closed by then.
        child.end_with_parent = lambda pid: None
        os.environ.clear()
        os.environ.update(self._environment)
        self._target(*args)


class ForkingContext:
    """Stands in for `multiprocessing.get_context("spawn")`: most of a second less per process.

    Args:
        only: names of the processes that are forked; all if there are none.
    """

    def __init__(self, *only: str) -> None:
        self._only = only
        self._spawning: SpawnContext = multiprocessing.get_context("spawn")
        self._forking: ForkServerContext = multiprocessing.get_context("forkserver")
        self._forking.set_forkserver_preload(IMPORTED)
        self.Pipe = self._spawning.Pipe

    def Process(self, *, target: Callable[..., None], args: Sequence[Any], name: str, **more: Any):  # noqa: N802
        if self._only and name not in self._only:
            return self._spawning.Process(target=target, args=args, name=name, **more)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
            forkserver._forkserver.ensure_running()
        target = InEnvironment(target)
        return self._forking.Process(target=target, args=args, name=name, **more)


@contextmanager
def forked_workers() -> Iterator[None]:
    """Fork workers; only for those that load neither torch nor kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bt_bench.processes.child.CONTEXT", ForkingContext())
        yield


@cache
def _for_suites() -> ForkingContext:
    return ForkingContext("bt-bench process of the suite")


@contextmanager
def forked_suites() -> Iterator[None]:
    """Fork the processes of users' suites, unless other processes are being replaced already."""
    from bt_bench.processes import child

    if child.CONTEXT is not multiprocessing.get_context("spawn"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "CONTEXT", _for_suites())
        yield


# Before the first command is forked. No kernel and no Triton: which of them a worker imports is up
# to the command.
IMPORTED_FOR_COMMANDS = [
    "torch",
    *("support.forked", "bt_bench.cli.app", "bt_bench.cli.check", "bt_bench.cli.sweep"),
    *("bt_bench.runs", "bt_bench.worker.main", "bt_bench.worker.executor"),
]


class _Server:
    """A server of its own that processes are forked from."""

    def __init__(self, imported: Sequence[str]) -> None:
        self._server = forkserver.ForkServer()
        self._server.set_forkserver_preload(list(imported))
        # What `multiprocessing` asks of its one server.
        self.connect_to_new_process = self._server.connect_to_new_process
        self.read_signed = forkserver.read_signed
        self._alone = Lock()

    def launch(self, process: Any) -> popen_forkserver.Popen:
        """Fork a process."""
        with self._alone, pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
            patch.setattr(popen_forkserver, "forkserver", self)
            return popen_forkserver.Popen(process)


@cache
def _commands() -> _Server:
    return _Server(IMPORTED_FOR_COMMANDS)


class _Process(ForkServerProcess):
    """A process that is forked from where torch has been imported."""

    @staticmethod
    def _Popen(process: Any) -> Any:  # noqa: N802
        return _commands().launch(process)


@dataclass(frozen=True)
class _Command:
    """Runs a command as a fresh interpreter would, with workers that are forked, too.

    Args:
        code: Python that runs.
        arguments: of the command.
        environment: of it.
        cwd: where it runs.
        streams: duplicates of its stdout and its stderr.
    """

    code: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    streams: Sequence[Any]

    def __call__(self) -> None:
        from bt_bench.processes import child

        for number, stream in enumerate(self.streams, 1):
            with os.fdopen(stream.detach()) as opened:
                os.dup2(opened.fileno(), number)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
        sys.argv = ["-c", *self.arguments]
        os.chdir(self.cwd)
        os.environ.clear()
        os.environ.update(self.environment)
        # Its workers are forked by the server that this process was forked by.
        forkserver._forkserver.ensure_running = lambda: None
        child.CONTEXT = ForkingContext("bt-bench worker")
        code = 1
        try:
            exec(compile(self.code, "<string>", "exec"), {"__name__": "__main__"})
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                sys.stderr.write(f"{end.code}\n")
        except BaseException:
            traceback.print_exc()
        finally:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def run_command(
    code: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    cwd: str,
    timeout: float,
) -> tuple[int, str, str]:
    """Run Python as a command, in a process that is forked from where torch has been imported.

    That is a second less for the command, and for each worker that it starts.

    Returns:
        The exit code, and its stdout and stderr.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        command = _Command(code, arguments, environment, cwd, (_Duplicate(out), _Duplicate(err)))
        process = _Process(target=command)
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"{' '.join(arguments)} did not end within {timeout} s")
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        assert process.exitcode is not None
        return process.exitcode, texts[0], texts[1]


@dataclass(frozen=True)
class _Duplicate:
    """A file that the process is started with a duplicate of."""

    file: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return _same, (reduction.DupFd(self.file.fileno()),)


def _same(duplicate: Any) -> Any:
    return duplicate
