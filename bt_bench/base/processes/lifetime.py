"""Processes that end with the one that started them, however that one ended.

`end_with_parent` is for our own processes. `run_kept` runs any command, with a keeper in between,
which is this file run as a script. The keeper ends all that the command has started: when the
command has ended, and when we are gone. So this file imports only the standard library.

What a process has started is found in two ways. It is below it in the tree of processes, even what
was forked twice, if the process adopts orphans. And if the process itself has ended, what it has
started still bears its mark, a name in the environment. Both need Linux.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # of linux/prctl.h
_POLL_SECONDS = 1.0
_SECONDS_TO_END = 10.0  # of a killed process, unless the kernel is busy for it
_MARK = "_BT_BENCH_WORKER_"  # begins the names of marks
_OWN_ERROR = 125  # as env and timeout have it


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Sends this process a signal when its parent ends, or at once if it has ended already.

    Args:
        parent: its process id, as the parent itself knows it.
        number: of the signal.
    """
    # By the kernel, since our own thread cannot run while C code holds the GIL.
    if not _prctl(_PR_SET_PDEATHSIG, number):
        threading.Thread(target=_watch, args=(parent, number), daemon=True).start()
    elif os.getppid() != parent:  # it ended before
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Makes this process the parent of all below it that lose theirs, so that they are found."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> bool:
    """Sets an attribute of this process; returns `False` where there are none, without Linux."""
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (AttributeError, OSError):
        return False
    prctl(option, ctypes.c_ulong(value), 0, 0, 0)
    return True


def _watch(parent: int, number: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), number)


def descendants_of(pid: int) -> dict[int, str]:
    """Process ids and names of all that a process has started and that still runs.

    Empty where there is no `/proc`. What has outlived the process between is found only if one
    above adopts orphans.
    """
    parents: dict[int, tuple[int, str]] = {}
    for entry in _running():
        with suppress(OSError, ValueError):
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            name, _, rest = text.partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent), name
    found: dict[int, str] = {}
    todo = [pid]
    while todo:
        above = todo.pop()
        below = {child: name for child, (parent, name) in parents.items() if parent == above}
        found |= below
        todo += below
    return found


@contextmanager
def marked() -> Iterator[str]:
    """A mark for the processes that this one starts in the block, and for all that they start."""
    mark = _MARK + secrets.token_hex(8)
    os.environ[mark] = "1"
    try:
        yield mark
    finally:
        del os.environ[mark]


def bearers_of(mark: str) -> list[int]:
    """Process ids of all that bears a mark, whatever has become of its parents.

    Empty where there is no `/proc`. What was started with another environment is not found.
    """
    found = []
    for entry in _running():
        with suppress(OSError):
            if f"{mark}=".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def end_all(find: Callable[[], Collection[int]]) -> None:
    """Kills processes until there are none, since they may start others meanwhile.

    Args:
        find: finds those that are still there.
    """
    deadline = time.monotonic() + _SECONDS_TO_END
    while (found := find()) and time.monotonic() < deadline:
        kill(found)
        time.sleep(0.01)


def kill(pids: Iterable[int]) -> None:
    """Kills processes, some of which may have ended."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _running() -> list[Path]:
    """The folders of all processes; each may end while it is looked at."""
    with suppress(OSError):
        # Not by a pattern for files in them, which would look at each.
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return []


def run_kept(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command; neither it nor anything that it has started outlives this call.

    Whatever ends the call early, such as Ctrl-C or the end of this process, ends them too.

    Args:
        command: the command with its arguments.
        env: the environment.
        cwd: where it runs.
        stdout: as in `subprocess.Popen`.
        stderr: likewise.
        seconds: time limit.

    Raises:
        subprocess.TimeoutExpired: when the time limit is reached.
    """
    keeper = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid())]
    with subprocess.Popen(
        [*keeper, *command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=seconds)
        except BaseException:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(2 * _SECONDS_TO_END)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(list(command), process.returncode, printed, errors)


def _keep(parent: int, command: Sequence[str]) -> int:
    """Runs a command, and ends all that it has started, at once when the parent ends.

    Returns:
        Its exit code.
    """

    def end(_number: int, _frame: object) -> None:
        _end_descendants()
        os.killpg(0, signal.SIGKILL)

    adopt_orphans()
    signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    end_with_parent(parent, signal.SIGTERM)
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _OWN_ERROR
    code = process.wait()
    _end_descendants()  # before we do, or who waits for the end of the output waits for them
    if code < 0:  # end as it ended, so that the parent sees the same
        with suppress(OSError):  # SIGKILL has no other handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _end_descendants() -> None:
    end_all(lambda: descendants_of(os.getpid()))


if __name__ == "__main__":
    sys.exit(_keep(int(sys.argv[1]), sys.argv[2:]))
