"""Claims on things of this host that one process has at a time: a GPU, or the time of its cores.

A claim is a lock on an empty file that stays, since a file that was removed while somebody waits
for it would be a second lock. The kernel gives a claim back when its process ends, however it ends.
A fork of the process does not have it, which is why it is no `flock`.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

from bt_bench.base.files import naming
from bt_bench.base.own_files import open_own

# Not the folder of temporary files: that may be another one in each job and each worker.
FOLDER = Path("/tmp")
_MOST = 400  # characters of a command


class Claim:
    """A claim on a thing of this host, for the processes of all users who have the same `/tmp`.

    Args:
        thing: its name, which is part of the name of a file.
    """

    def __init__(self, thing: str) -> None:
        self._path = FOLDER / f"bt-bench.{thing}.claim"
        self._number: int | None = None

    def take(self) -> bool:
        """Take the thing, unless another process has it; return whether it is ours.

        Raises:
            UsageError: if files cannot be locked in its folder.
        """
        import fcntl  # which Windows lacks; nothing is measured there

        with naming(self._path):
            number = self._opened()
            try:
                fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(number)
                return False
            except BaseException:
                os.close(number)
                raise
            os.ftruncate(number, 0)
            who = f"{os.getpid()} ({shlex.join(['bt-bench', *sys.argv[1:]])[:_MOST]})"
            os.pwrite(number, who.encode(errors="replace"), 0)
        self._number = number
        return True

    def holder(self) -> str:
        """Return the id and the command of the process that has it, such as `123 (bt-bench …)`."""
        with naming(self._path):
            number = self._opened()
        # Closing any descriptor of a file gives all claims of a process on it back.
        assert self._number is None
        try:
            return os.pread(number, 2 * _MOST, 0).decode(errors="replace") or "of unknown id"
        finally:
            os.close(number)

    def give_back(self) -> None:
        """Give the thing back, if it is ours."""
        number, self._number = self._number, None
        if number is not None:
            with suppress(OSError):  # users' code may have closed it
                os.close(number)

    def _opened(self) -> int:
        try:
            return open_own(self._path, os.O_RDWR)
        except FileNotFoundError:
            number = open_own(self._path, os.O_RDWR | os.O_CREAT)
            with suppress(OSError):  # another user was faster
                os.fchmod(number, 0o666)
            return number
