"""Temporary folders that are removed with their owner, or by the next user if it was killed.

Beside each folder `bt-bench-….d` is a file `bt-bench-….lock`, which its owner keeps locked. The
system releases the lock when the process ends, however it ends. If the lock is free, the owner is
gone and the folder can be removed. A process id would not show that, since ids are reused.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bt_bench.base.errors import UsageError
from bt_bench.base.own_files import lock

_PREFIX, _FOLDER, _LOCK = "bt-bench-", ".d", ".lock"


def _temporary() -> Path:
    """Return the folder of temporary files.

    Raises:
        UsageError: if none of the usual folders can be written to.
    """
    import tempfile  # not above: `--help` imports this module, and that one takes milliseconds

    try:
        return Path(tempfile.gettempdir()).resolve()
    except FileNotFoundError as error:
        tried = str(error.strerror).partition(" in ")[2] or "the usual places"
        raise UsageError(
            f"no folder for temporary files can be written to; tried {tried}. Set TMPDIR to a "
            "folder that can, with a few hundred MiB free"
        ) from None


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """Yield a new private folder, and remove it when the block ends.

    First, the folders of killed owners are removed.

    Args:
        purpose: a word of the folder's name.

    Raises:
        UsageError: if it cannot be made.
    """
    stem = f"{_PREFIX}{purpose}-{os.urandom(6).hex()}"
    with _naming_its_setting():
        clear_away()
        path = _temporary() / f"{stem}{_FOLDER}"
        lock_path = path.with_suffix(_LOCK)
        # The lock comes first, or a concurrent clean-up would take the folder for abandoned.
        number = lock(lock_path)
    try:
        with _naming_its_setting():
            path.mkdir(mode=0o700)
        yield path
    finally:
        _remove(path)
        lock_path.unlink(missing_ok=True)
        os.close(number)


@contextmanager
def _naming_its_setting() -> Iterator[None]:
    """Add to a system error how to choose another folder of temporary files."""
    try:
        yield
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        raise UsageError(
            f"cannot make a temporary file{where}: {error.strerror or error}; set TMPDIR to "
            "another folder"
        ) from error


def clear_away() -> None:
    """Remove the folders whose owners are gone; keep any that cannot be removed."""
    for lock_path in _temporary().glob(f"{_PREFIX}*{_LOCK}"):
        with suppress(OSError):  # it is locked by a living owner, or belongs to another user
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
    if path.exists():  # a build may have made folders that are not writable
        for folder, names, _ in os.walk(path):
            for name in names:
                with suppress(OSError):
                    Path(folder, name).chmod(0o700, follow_symlinks=False)
        shutil.rmtree(path, ignore_errors=True)
