"""Opening of bt-bench's own files without following links, blocking, or truncating anything.

Something else may be in place of such a file, such as a link to an important file, or a FIFO
without a writer.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

# NFS without a lock daemon, Lustre mounted without flock, and some FUSE file systems.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

# Windows has none of the first four, and alone has the last.
_NAMES = ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
_GUARDS = sum(getattr(os, name, 0) for name in _NAMES)
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_own(path: Path, flags: int) -> int:
    """Open a regular file and nothing else; return its descriptor.

    Args:
        path: the file.
        flags: the flags of `os.open`.

    Raises:
        OSError: if it cannot be opened, or is not a regular file.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        pass
    else:
        _refuse(status)  # before opening it: opening some devices has side effects
    try:
        number = os.open(path, flags | _GUARDS, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:  # it has become a link
            _refuse(path.lstat())
        raise
    try:
        _refuse(os.fstat(number))
    except BaseException:
        os.close(number)
        raise
    return number


def _refuse(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, refusal_of(status))


def lock(path: Path, *, create: bool = True) -> int:
    """Lock a file until the returned descriptor is closed or this process ends.

    Raises:
        BlockingIOError: if another process holds the lock.
        OSError: if the file cannot be opened, or is not a regular file.
    """
    import fcntl  # which Windows lacks; results are read there, and no file is locked

    while True:
        number = open_own(path, os.O_RDWR | (os.O_CREAT if create else 0))
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(path, number):
                return number
        except BaseException as error:
            os.close(number)
            if isinstance(error, OSError) and error.errno in _NO_LOCKS:
                raise OSError(
                    error.errno,
                    f"its file system cannot lock files ({error.strerror}); expected one that can",
                    str(path),
                ) from error
            raise
        os.close(number)  # its previous owner removed the file after it was opened here


def is_at(path: Path, number: int) -> bool:
    """Return whether an open file is still the one at a path."""
    try:
        there = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return os.path.samestat(there, os.fstat(number))


def kind_of(status: os.stat_result) -> str:
    """Return the name of a file's kind, for messages."""
    return next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "a regular file")


def refusal_of(status: os.stat_result) -> str:
    """Return the message that refuses anything but a regular file in a run folder."""
    return f"it is {kind_of(status)}; expected a regular file or nothing; remove it"
