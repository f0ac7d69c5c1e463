"""Processes that end with the one that started them, however that one ended.

`end_with_parent` is for our own processes. `run_kept` runs any command, with a keeper in between,
which is this file run as a script. The keeper watches the process group of the command and ends all
of it when we are gone, including what a shell or compiler has started. So this file imports only
the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
_POLL_SECONDS = 1.0
_OWN_ERROR = 125  # as env and timeout have it


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Sends this process a signal when its parent ends, or at once if it has ended already.

    Args:
        parent: its process id, as the parent itself knows it.
        number: of the signal.
    """
    try:
        # By the kernel, since our own thread cannot run while C code holds the GIL.
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (AttributeError, OSError):  # no Linux
        threading.Thread(target=_watch, args=(parent, number), daemon=True).start()
        return
    prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        os.kill(os.getpid(), number)


def _watch(parent: int, number: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), number)


def descendants_of(pid: int) -> dict[int, str]:
    """Process ids and names of all that a process has started and that still runs.

    Empty where there is no `/proc`. What has outlived the process between is not found.
    """
    parents: dict[int, tuple[int, str]] = {}
    running: list[Path] = []
    with suppress(OSError):
        running = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    for entry in running:
        # Not by a pattern for the files, which would look at each, and one may have just ended.
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


def run_kept(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command in its own process group, which never outlives this call.

    Whatever ends the call early, such as Ctrl-C or the end of this process, ends the group.

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
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=seconds)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(list(command), process.returncode, printed, errors)


def _keep(parent: int, command: Sequence[str]) -> int:
    """Runs a command, and ends its group and this process when the parent ends.

    Returns:
        Its exit code.
    """

    def end_all(_number: int, _frame: object) -> None:
        os.killpg(0, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end_all)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    end_with_parent(parent, signal.SIGTERM)
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _OWN_ERROR
    code = process.wait()
    if code < 0:  # end as it ended, so that the parent sees the same
        with suppress(OSError):  # SIGKILL has no other handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(_keep(int(sys.argv[1]), sys.argv[2:]))
