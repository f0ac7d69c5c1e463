"""Commands that are forked from a process that has imported what they import, but for torch.

They take half a second to a second less. It is for tests of what a command does: those of what it
imports, of its environment at the start and of its processes begin a fresh one.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

RELAY = Path(__file__).with_name("relay.py")
# Not `typer.rich_utils`, which reads the environment when it is imported.
IMPORTED = (
    "bt_bench.cli.app",
    "bt_bench.cli.exits",
    "bt_bench.config",
    "bt_bench.report",
    "bt_bench.results",
    "bt_bench.runs",
    "bt_bench.suites.block_tables.suite",
    "bt_bench.worker.process.supervisor",
    "multiprocessing.popen_spawn_posix",
    "typer._adapters",
)


def words_of(code: str) -> list[str]:
    """Return the words of a command, in place of `python -c CODE`, that has `code` run forked."""
    return [sys.executable, "-I", "-S", str(RELAY), _address(), code]


@cache
def _address() -> str:
    """Start the process that forks; it ends with this one. Return where it listens."""
    # In the home of the tests, which is gone with them however this one ends.
    address = str(Path(tempfile.mkdtemp("-prepared", dir=os.environ["TEST_HOME"])) / "socket")
    begin = (
        f"import sys; sys.path.append({str(RELAY.parents[1])!r})\n"
        "from support.prepared import next_code\n"
        f"code = next_code({address!r})\n"
        "del next_code; exec(code)"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", begin],
        cwd="/",  # not where a test is, whose modules would be imported
        stdin=subprocess.PIPE,  # its end is that of this process
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    atexit.register(_await_end, server, os.getpid())
    return address


def _await_end(server: subprocess.Popen[bytes], pid: int) -> None:
    """Have its time counted as that of the process that started it."""
    if os.getpid() == pid:
        server.communicate()


def next_code(address: str) -> Any:
    """Fork a process for each connection, in which this returns the code that it is to run."""
    for name in IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    os.write(1, b"ready\n")
    running: dict[int, tuple[int, socket.socket]] = {}  # by a file of the process
    while True:
        relays = {relay.fileno(): pid for pid, relay in running.values()}
        ready, _, _ = select.select([0, listener, *running, *relays], [], [])
        if 0 in ready:
            _end(address, running)
        for file in ready:
            if file in running:
                pid, relay = running.pop(file)
                os.close(file)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _tell(relay, code)
                relay.close()
            elif file in relays:  # it was killed, for it says nothing else
                os.kill(relays[file], signal.SIGKILL)
        if listener in ready:
            relay, _ = listener.accept()
            files, asked = _asked(relay)
            if (pid := os.fork()) == 0:
                for other in (listener, relay, *(each for _, each in running.values())):
                    other.close()
                for file in running:
                    os.close(file)
                return _begun(files, *asked)
            for file in files:
                os.close(file)
            _tell(relay, pid)
            running[os.pidfd_open(pid)] = pid, relay


def _end(address: str, running: dict[int, tuple[int, socket.socket]]) -> None:
    for pid, _ in running.values():
        os.kill(pid, signal.SIGKILL)
    Path(address).unlink()
    Path(address).parent.rmdir()
    os._exit(0)


def _tell(relay: socket.socket, number: int) -> None:
    try:
        relay.sendall(number.to_bytes(8, signed=True))
    except OSError:
        """It was killed."""


def _asked(relay: socket.socket) -> tuple[list[int], Any]:
    size, files, _, _ = socket.recv_fds(relay, 8, 3)
    left, parts = int.from_bytes(size), []
    while left:
        parts.append(relay.recv(left))
        left -= len(parts[-1])
    return files, json.loads(b"".join(parts))


def _begun(files: list[int], folder: str, environment: dict[str, str], words: list[str]) -> Any:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # As they would be made now: what the old ones are on has been looked at.
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.stdin)
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.stdout)
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.stderr)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    code, *arguments = words
    sys.argv = ["-c", *arguments]
    sys.path.remove(str(RELAY.parents[1]))
    return compile(code, "<string>", "exec")


def _stream(number: int, mode: str, before: Any) -> Any:
    by_lines = number == 2 or os.isatty(number)
    return open(
        number,
        mode,
        buffering=1 if by_lines else -1,
        encoding=before.encoding,
        errors=before.errors,
        closefd=False,
    )
