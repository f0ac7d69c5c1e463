"""Waiting for processes in tests, and processes that start at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def wait_for(condition: Callable[[], object], seconds: float = 600) -> None:
    """Waits until something is so; the limit is for what hangs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    """Whether a process is there, and no mere entry of one that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends while it is read
        return False


def running_with(text: str) -> list[int]:
    """Processes that have a text in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if text.encode() in command and runs(int(path.name)):
            found.append(int(path.name))
    return found


_FORKS = """\
import json, os, site, sys, traceback
import gc, {imported}
gc.freeze()
for place in os.environ.pop("PYTHONPATH", "").split(os.pathsep):
    if place in sys.path:
        sys.path.remove(place)
# An installed checkout would be there without the variable, too.
for folder in site.getsitepackages():
    site.addsitedir(folder)
for line in sys.stdin:
    code, arguments, cwd, environment = json.loads(line)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
        sys.argv[1:] = arguments
        try:
            exec(code, {{"__name__": "__main__"}})
        except BaseException:
            print(traceback.format_exc(), flush=True)
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        said = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, said]), flush=True)
"""


@contextmanager
def forked_programs(imported: str) -> Iterator[Callable[..., tuple[int, str]]]:
    """Make processes, as `python -c` does, by forks of one that has imported what they need.

    Gives a function of a program, its arguments, its working directory, and variables, by name,
    that are not those of this process. It returns the exit code, and what was printed.

    Args:
        imported: names of modules, with commas.
    """
    command = [sys.executable, "-c", _FORKS.format(imported=imported)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        asked, answered = process.stdin, process.stdout
        assert asked is not None
        assert answered is not None

        def run(code: str, arguments: list[str], cwd: object, **changed: str) -> tuple[int, str]:
            asked.write(json.dumps((code, arguments, str(cwd), os.environ | changed)) + "\n")
            asked.flush()
            exit_code, said = json.loads(answered.readline())
            return exit_code, said

        yield run
        asked.close()
