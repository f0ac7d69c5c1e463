"""Atomic writing: a file is complete or absent, even if the process is killed.

There are two kinds of files. A file that the user names may be any target of a shell redirection: a
regular file is replaced, a symbolic link is kept and its target replaced, and anything else is
written to directly. A file of a run folder belongs to bt-bench; a link or a device in its place is
refused.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bt_bench.base.own_files import kind_of, lock, refusal_of

TEMPORARY_SUFFIX = ".tmp"
_MAX_LINKS = 40  # as many as Linux follows


def write_text(path: Path, text: str) -> None:
    """Write a file that the user has named; see `writing`."""
    with writing(path) as file:
        file.write(text.encode())


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a binary file for writing to a path that the user has named.

    A regular file is replaced when the block ends without an exception, and keeps its permissions.
    A symbolic link stays, and the file that it leads to is replaced. Anything else, such as a
    terminal, /dev/stdout or a FIFO, is written to directly. As in a shell, opening a FIFO waits for
    a reader.

    Raises:
        OSError: if the path cannot be written.
    """
    number = descriptor_of(path)
    if number is not None:
        # Reopening would truncate a file that stdout is appended to.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # earlier output comes first
        with os.fdopen(os.dup(number), "wb") as file:
            yield file
        return
    status = _status(path)
    target = Path(os.path.realpath(path))
    if status is None or _is_replaceable(status, target):
        with _replaced(target, status) as file:
            yield file
        return
    if stat.S_ISDIR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        raise OSError(errno.EINVAL, f"it is {kind_of(status)}")  # nobody wants to overwrite a disk
    # Opening a FIFO waits here until somebody reads it; Ctrl-C interrupts that.
    number = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(number, "wb") as file:
        yield file


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a binary file of a run folder for writing; it appears when the block ends.

    Raises:
        OSError: if it cannot be written, or if the path exists and is not a regular file.
    """
    status = _status(path, follow=False)
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, refusal_of(status))
    with _replaced(path, status) as file:
        yield file


def is_stream(path: Path) -> bool:
    """Return whether a path leads to a stream, which cannot be rewritten."""
    if descriptor_of(path) is not None:
        return True
    status = _status(path)
    return status is not None and not _is_replaceable(status, Path(os.path.realpath(path)))


def is_null_device(path: Path) -> bool:
    """Return whether a path is the null device, which several outputs can share."""
    with suppress(OSError):
        status, null = path.stat(), Path(os.devnull).stat()
        return stat.S_ISCHR(status.st_mode) and status.st_rdev == null.st_rdev
    return False


def target_of(path: Path) -> Hashable:
    """Return a key that identifies the file or stream at a path."""
    with suppress(OSError):
        if is_stream(path):
            number = descriptor_of(path)
            status = path.stat() if number is None else os.fstat(number)
            return status.st_dev, status.st_ino
    return os.path.realpath(path)


def is_open_as(number: int, path: Path) -> bool:
    """Return whether a descriptor of this process refers to the regular file at a path."""
    with suppress(OSError):
        status = path.stat()
        return stat.S_ISREG(status.st_mode) and os.path.samestat(os.fstat(number), status)
    return False


def descriptor_of(path: Path) -> int | None:
    """Return the descriptor that a path names, as /dev/stdout and /dev/fd/3 do, or `None`."""
    folders = {"/dev/fd", *map(os.path.realpath, ("/proc/self/fd", "/proc/thread-self/fd"))}
    for _ in range(_MAX_LINKS):
        folder, name = os.path.realpath(path.parent), path.name
        if folder in folders:
            return int(name) if name.isascii() and name.isdecimal() else None
        try:
            path = Path(folder, path.readlink())
        except OSError:
            return None
    return None


def _status(path: Path, *, follow: bool = True) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=follow)
    except FileNotFoundError:
        return None


def _is_replaceable(status: os.stat_result, target: Path) -> bool:
    """Return whether a regular file still lies at the path that leads to it.

    A link in /proc may lead to an open file that has been deleted or moved since.
    """
    if not stat.S_ISREG(status.st_mode):
        return False
    there = _status(target, follow=False)
    return there is not None and os.path.samestat(status, there)


@contextmanager
def _replaced(path: Path, status: os.stat_result | None) -> Iterator[IO[bytes]]:
    """Yield a temporary file that takes the place of a path when the block ends.

    A killed process leaves a hidden `.<name>.….tmp` behind, which is never read. Whoever writes to
    the path next removes it.
    """
    _clear_away(path)
    temporary, number = _claimed(path)
    try:
        with temporary.open("wb") as file:
            if status is not None:
                _keep_permissions(file.fileno(), status)  # before there is any content
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # a Ctrl-C here must not leave the temporary file either
        temporary.unlink(missing_ok=True)
        raise
    finally:
        if number is not None:
            os.close(number)
    _sync_folder(path.parent)


def _claimed(path: Path) -> tuple[Path, int | None]:
    """Return a new temporary file beside a path, and a lock that shows that its writer lives.

    The lock is `None` where files cannot be locked, or the temporary file cannot be made.
    """
    while True:
        name = f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}"
        temporary = path.with_name(name)
        try:
            return temporary, lock(temporary)
        except BlockingIOError:  # it was taken for abandoned before it was locked
            continue
        except (OSError, ImportError):
            return temporary, None


def _clear_away(path: Path) -> None:
    """Remove temporary files of a path whose writers were killed; keep any that is locked."""
    left = re.compile(rf"\.{re.escape(path.name)}\.\d+\.[0-9a-f]{{8}}{re.escape(TEMPORARY_SUFFIX)}")
    # Nobody can list some folders, or lock files in them.
    with suppress(OSError):
        for found in filter(lambda entry: left.fullmatch(entry.name), path.parent.iterdir()):
            with suppress(OSError, ImportError):
                number = lock(found, create=False)
                try:
                    found.unlink()
                finally:
                    os.close(number)


def _keep_permissions(number: int, status: os.stat_result) -> None:
    with suppress(OSError):  # only root may change the owner
        os.fchown(number, status.st_uid, status.st_gid)
    with suppress(OSError):  # some file systems have no permissions
        os.fchmod(number, stat.S_IMODE(status.st_mode))


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, if the system can open folders."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
