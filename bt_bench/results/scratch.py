"""Temporary folders that are gone when their owner is, at the latest when the next one comes.

Beside each folder `bt-bench-….d` is a file `bt-bench-….lock`, which its owner keeps locked. The
system takes a lock away when a process ends, however it ended. So a lock that can be had is one
whose owner was killed, and its folder is rubbish; numbers of processes come again and would not
say so.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from bt_bench.results.own_files import lock

_PREFIX, _FOLDER, _LOCK = "bt-bench-", ".d", ".lock"


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """A new folder of ours alone, gone when the block ends; first clears away those of the killed.

    Args:
        purpose: a word of its name.

    Raises:
        OSError: if it cannot be made.
    """
    clear_away()
    stem = f"{_PREFIX}{purpose}-{token_hex(6)}"
    path = Path(tempfile.gettempdir()).resolve() / f"{stem}{_FOLDER}"
    lock_path = path.with_suffix(_LOCK)
    # The lock first: whoever clears away meanwhile takes no folder for one that nobody owns.
    number = lock(lock_path)
    try:
        path.mkdir(mode=0o700)
        yield path
    finally:
        _remove(path)
        lock_path.unlink(missing_ok=True)
        os.close(number)


def clear_away() -> None:
    """Removes the folders whose owners are gone; what cannot be removed stays."""
    for lock_path in Path(tempfile.gettempdir()).resolve().glob(f"{_PREFIX}*{_LOCK}"):
        with suppress(OSError):  # an owner that lives has it locked; another user's is not ours
            if lock_path.lstat().st_uid == os.geteuid():
                _clear_away(lock_path)


def _clear_away(lock_path: Path) -> None:
    number = lock(lock_path, create=False)
    try:
        path = lock_path.with_suffix(_FOLDER)
        with suppress(FileNotFoundError):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                return
            _remove(path)
        if not path.exists():
            lock_path.unlink(missing_ok=True)
    finally:
        os.close(number)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():  # a build may have made folders that nothing can be taken out of
        for folder, names, _ in os.walk(path):
            for name in names:
                with suppress(OSError):
                    Path(folder, name).chmod(0o700, follow_symlinks=False)
        shutil.rmtree(path, ignore_errors=True)
