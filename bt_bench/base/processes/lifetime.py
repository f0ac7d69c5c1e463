"""Processes that end with the process that started them, however that one ended.

`end_with_parent` is for bt-bench's own processes. `run_kept` runs any command below a keeper, which
is this file run as a script. The keeper ends everything that the command has started, once the
command or bt-bench has ended. Therefore, this file imports only the standard library.

The descendants of a process are found in two ways. If the process adopts orphans, all of them are
below it in the tree of processes, even after a double fork. If the process itself has ended, they
still bear its mark, a name in the environment. Both ways need Linux.
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

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # of linux/prctl.h
_POLL_SECONDS = 1.0
_SECONDS_TO_END = 10.0  # enough for a killed process, unless the kernel is busy on its behalf
_MARK = "_BT_BENCH_WORKER_"  # prefix of the names of marks
_OWN_ERROR = 125  # as for env and timeout


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Signal this process when its parent ends, or at once if the parent has already ended.

    Args:
        parent: the parent's process id, as the parent itself knows it.
        number: the signal.
    """
    # The kernel sends it: a thread of this process cannot run while C code holds the GIL.
    if not _prctl(_PR_SET_PDEATHSIG, number):
        threading.Thread(target=_watch, args=(parent, number), daemon=True).start()
    elif os.getppid() != parent:  # it has already ended
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Make this process adopt its orphaned descendants, which are then found below it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> bool:
    """Set an attribute of this process; return `False` if there is no `prctl`, as without Linux."""
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
    """Return the ids and names of all running processes that a process has started.

    The result is empty without `/proc`. If a process in between has ended, its children are found
    only if a process above adopts orphans.
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
    """Yield a mark that the processes started in the block bear, and all that those start."""
    mark = _MARK + secrets.token_hex(8)
    os.environ[mark] = "1"
    try:
        yield mark
    finally:
        del os.environ[mark]


def bearers_of(mark: str) -> list[int]:
    """Return the ids of all processes that bear a mark, even if their parents have ended.

    The result is empty without `/proc`. A process started with a new environment is not found.
    """
    found = []
    for entry in _running():
        with suppress(OSError):
            if f"{mark}=".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def end_all(find: Callable[[], Collection[int]]) -> None:
    """Kill processes until none is left, since they may start others, for at most 10 s.

    Args:
        find: returns the processes that are left.
    """
    deadline = time.monotonic() + _SECONDS_TO_END
    while (found := find()) and time.monotonic() < deadline:
        kill(found)
        time.sleep(0.01)


def kill(pids: Iterable[int]) -> None:
    """Kill processes; some may have ended already."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _running() -> list[Path]:
    """Return the folders of all processes; each may end while it is read."""
    with suppress(OSError):
        # A pattern for files in the folders would look into each of them.
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return []


def run_kept(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stderr: int = subprocess.PIPE,
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command; neither it nor any process that it starts outlives this call.

    If the call ends early, by Ctrl-C or with this process for example, they end too.

    Args:
        command: the command with its arguments.
        env: the environment.
        cwd: the working directory.
        stderr: as in `subprocess.Popen`.
        seconds: the time limit.

    Raises:
        subprocess.TimeoutExpired: if the time limit is reached.
    """
    keeper = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid())]
    with subprocess.Popen(
        [*keeper, *command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
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
    """Run a command, then end all that it has started; end it at once when the parent ends.

    Returns:
        The command's exit code.
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
    _end_descendants()  # first, since they may hold open the output that a reader waits for
    if code < 0:  # end by the same signal, for the parent to see
        with suppress(OSError):  # SIGKILL's handler cannot be set
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _end_descendants() -> None:
    end_all(lambda: descendants_of(os.getpid()))


if __name__ == "__main__":
    sys.exit(_keep(int(sys.argv[1]), sys.argv[2:]))
