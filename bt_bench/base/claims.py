"""Claims on things of this host that one process has at a time: a GPU, or the time of its cores.

Several processes may share a thing, and nobody can have it to itself meanwhile.

A claim is a lock on an empty file that stays, since a file that was removed while somebody waits
for it would be a second lock. The kernel gives a claim back when its process ends, however it ends.
A fork of the process does not have it, which is why it is no `flock`.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bt_bench.base.errors import UsageError
from bt_bench.base.own_files import open_own

# Not the folder of temporary files: that may be another one in each job and each worker.
FOLDER = Path("/tmp")
_MOST = 400  # characters of a command
# The claims of this process: the system would give it a thing twice, and take both back with the
# first. With the id of the process, since a fork has none of its claims.
_HELD: dict[tuple[Path, int], Claim] = {}


class Claim:
    """A claim on a thing of this host, for the processes of all users who have the same `/tmp`.

    Args:
        thing: its name, which is part of the name of a file.
    """

    def __init__(self, thing: str) -> None:
        self._path = FOLDER / f"bt-bench.{thing}.claim"
        self._number: int | None = None

    def take(self, *, shared: bool = False) -> bool:
        """Take the thing, unless a process has it, this one included; return whether it is ours.

        Args:
            shared: whether other processes may share it.

        Raises:
            UsageError: if files cannot be locked in its folder.
        """
        import fcntl  # which Windows lacks; nothing is measured there

        key = self._path, os.getpid()
        if _HELD.setdefault(key, self) is not self:
            return False
        try:
            with _saying_what_is_expected(self._path):
                self._number = self._opened()
                kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
                fcntl.lockf(self._number, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            self.give_back()
            return False
        except BaseException:
            self.give_back()
            raise
        with suppress(OSError):  # a full disk: the name is for messages only
            os.ftruncate(self._number, 0)
            os.pwrite(self._number, _who().encode(errors="replace"), 0)
        return True

    def holder(self) -> str:
        """Return the id and the command of the process that has it, such as `123 (bt-bench …)`.

        If several share it, it is the one that came last.
        """
        # Closing any descriptor of a file gives all claims of a process on it back.
        if (self._path, os.getpid()) in _HELD:
            return _who()
        with _saying_what_is_expected(self._path):
            number = self._opened()
        try:
            text = os.pread(number, 2 * _MOST, 0).decode(errors="replace")
        finally:
            os.close(number)
        # Anybody can write to the file, so it may hold sequences that terminals obey.
        return "".join(filter(str.isprintable, text)) or "of unknown id"

    def give_back(self) -> None:
        """Give the thing back, if it is ours."""
        number, self._number = self._number, None
        if number is not None:
            with suppress(OSError):  # users' code may have closed it
                os.close(number)
        key = self._path, os.getpid()
        if _HELD.get(key) is self:
            del _HELD[key]

    def _opened(self) -> int:
        try:
            number = open_own(self._path, os.O_RDWR)
        except FileNotFoundError:
            try:  # exclusively, since only a file of our own may be opened up to all
                number = open_own(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            except FileExistsError:  # another process was faster
                return self._opened()
            with suppress(OSError):  # a file system without modes
                os.fchmod(number, 0o666)
        if os.fstat(number).st_nlink > 1:
            os.close(number)
            raise OSError(errno.EMLINK, "it is another name of some file, which is left alone")
        return number


def _who() -> str:
    return f"{os.getpid()} ({shlex.join(['bt-bench', *sys.argv[1:]])[:_MOST]})"


@contextmanager
def _saying_what_is_expected(path: Path) -> Iterator[None]:
    """Turn system errors into a `UsageError` that names the file, and what helps."""
    try:
        yield
    except BlockingIOError:  # another process has it
        raise
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be locked: {error.strerror or error}; commands of bt-bench keep out "
            f"of each other's times by it; expected a {path.parent} in which all users can make "
            "and lock files, and there either no such file or one that all can write; remove or "
            "chmod it, or mount such a folder there"
        ) from error
