"""One shard on a worker: the very command that a user would type, in a process of its own.

No object of the engine is in that process. Functions here get and return plain values: a worker may
have another version of bt-bench, and reports that.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

from bt_bench.base.errors import ExitCode, UsageError
from bt_bench.base.processes.lifetime import end_with_parent, run_kept
from bt_bench.results import CONFIG_NAME, RunFolder

VISIBLE = "CUDA_VISIBLE_DEVICES"
_PACKAGES = ("bt-bench", "bt-kernels", "torch", "triton")
_TAIL = 2000  # characters of the end of a log that a message may quote
_POLL_S, _PATIENCE_S = 0.5, 60.0


class Ended(TypedDict):
    """Describe the end of a shard on a worker.

    Attributes:
        code: exit code of the command; `None`: it was not run.
        host: name of the worker's host.
        device: GPU that the worker was given; empty if the scheduler chose none.
        seconds: time that the command took.
        tail: last lines that it printed, or why it was not run.
    """

    code: int | None
    host: str
    device: str
    seconds: float
    tail: str


def versions() -> dict[str, str]:
    """Return the versions, by name, that have to be the same in all shards of a sweep."""
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def run_shard(
    arguments: Sequence[str], resumed: Sequence[str], folder: str, expected: Mapping[str, str]
) -> Ended:
    """Measure a shard, or continue it if it was begun; called on a worker.

    The command ends with the worker, and the worker with the process that started it, however these
    end: a shard is never measured by two processes.

    Args:
        arguments: of `bt-bench`, to begin the shard; `--out` and the folder are appended.
        resumed: of `bt-bench`, to continue it; `--resume` and the folder are appended.
        folder: of the shard's run.
        expected: `versions()` of the process that gives out shards.
    """
    began = time.monotonic()
    given = os.environ.get(VISIBLE, "")
    here = versions()
    differ = [f"{n} {here.get(n, 'none')} in place of {v}" for n, v in expected.items()
              if here.get(n) != v]  # fmt: skip
    if differ:
        return _ended(None, given, began, f"it has {', '.join(differ)}; install the same versions")
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        end_with_parent(parent.pid)
    path = Path(folder)
    try:
        _wait_for_lock(path)
        words = [*resumed, "--resume", folder]
        if not _is_begun(path):
            words = [*arguments, "--out", folder]
    except UsageError as error:
        return _ended(None, given, began, str(error))
    log = path.with_name(f"{path.name}.log")
    with log.open("a", encoding="utf-8") as file:
        print(f"on {platform.node()}, {VISIBLE}={given}: bt-bench {' '.join(words)}", file=file)
        file.flush()
        command = [sys.executable, "-m", "bt_bench", *words]
        done = run_kept(command, env=os.environ, stderr=file.fileno())
        file.write(done.stdout)
    text = log.read_text(encoding="utf-8", errors="replace")[-_TAIL:]
    return _ended(done.returncode, given, began, text.strip())


def succeeded(ended: Ended) -> bool:
    """Return whether a shard is whole; a variant that failed a case is part of its result."""
    return ended["code"] in (ExitCode.OK, ExitCode.CHECK_FAILED)


def _ended(code: int | None, device: str, began: float, tail: str) -> Ended:
    seconds = round(time.monotonic() - began, 3)
    return Ended(code=code, host=platform.node(), device=device, seconds=seconds, tail=tail)


def _is_begun(path: Path) -> bool:
    """Return whether a shard has a run to continue; what has measured nothing is removed."""
    if path.is_dir() and not (path / CONFIG_NAME).is_file():
        shutil.rmtree(path)
    return path.is_dir()


def _wait_for_lock(path: Path) -> None:
    """Wait for a process that still writes the folder; it has lost its worker, and is ending."""
    deadline = time.monotonic() + _PATIENCE_S
    while path.is_dir():
        try:
            with RunFolder(path).locked():
                return
        except UsageError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
