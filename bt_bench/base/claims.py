"""Claims on things of this host that one process has at a time: a GPU, or the time of its cores.

Several processes may share a thing, and nobody can have it to itself meanwhile. Once a process has
announced that it wants that, no further one can share the thing.

A claim is a lock on a part of a file that stays, since a file that was removed while somebody waits
for it would be a second lock. The first part is of the process that has the thing to itself, or
wants to; each other part is of one that shares it, and has its name. The kernel gives a claim back
when its process ends, however it ends. A fork of the process does not have it, which is why it is
no `flock`.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bt_bench.base.errors import UsageError, listed
from bt_bench.base.own_files import open_own

# In the order of choice. Not the folder of temporary files: that may be another one in each job and
# each worker. A service may have a `/tmp` of its own; and in `/dev/shm` systemd removes the files
# of users who have logged out.
FOLDERS = (Path("/run/lock"), Path("/tmp"), Path("/dev/shm"))
_ALL_USERS = 0o003  # can make files in it, and open them
_PART = 512  # bytes: room for a name
_MOST_SHARING = 255
_MOST_SHOWN = 3
# The claims of this process: the system would give it a thing twice, and take both back with the
# first. With the id of the process, since a fork has none of its claims.
_HELD: dict[tuple[Path, int], Claim] = {}


def claims_folder() -> tuple[Path, bool]:
    """Return the folder of claims, and whether all users can make claims there.

    It is the first in which all users can, so all processes have the same one; where there is none,
    the first in which this user can.

    Raises:
        UsageError: if there is none either.
    """
    own = [path for path in FOLDERS if path.is_dir() and os.access(path, os.W_OK | os.X_OK)]
    common = [path for path in own if path.stat().st_mode & _ALL_USERS == _ALL_USERS]
    for path in (*common, *own):
        return path, bool(common)
    raise UsageError(
        "commands of bt-bench keep out of each other's times by locked files, and this user can "
        f"make none in {listed([*map(str, FOLDERS)])}; expected one of these folders in which all "
        "users can make and lock files; mount such a folder there"
    )


class Claim:
    """A claim on a thing of this host, for the processes of all users who have the same folder.

    Args:
        thing: its name, which is part of the name of a file.

    Raises:
        UsageError: if there is no folder for it.
    """

    def __init__(self, thing: str) -> None:
        self._path = claims_folder()[0] / f"bt-bench.{thing}.claim"
        self._number: int | None = None
        self._part: int | None = None

    def take(self, *, shared: bool = False) -> bool:
        """Take the thing, unless a process has it, this one included; return whether it is ours.

        Args:
            shared: whether other processes may share it.

        Raises:
            UsageError: if files cannot be locked in its folder.
        """
        if not (self._share() if shared else self.announce() and self.is_alone()):
            self.give_back()
        return self._part is not None

    def announce(self) -> bool:
        """Let no further process share the thing, unless one has announced the same.

        The thing is ours once `is_alone`.

        Returns:
            Whether this one has announced it.

        Raises:
            UsageError: as `take`.
        """
        return self._begin() and self._takes(0)

    def is_alone(self) -> bool:
        """Return whether nobody shares the thing that was announced; then nobody else has it."""
        return self._lock(_PART, 0)  # all other parts, however many there are

    def holder(self) -> str:
        """Return the processes that have it, or the one that has announced that it wants it.

        An example is `123 (bt-bench check quick, since 2026-11-28 18:24)`.
        """
        key = self._path, os.getpid()
        held = _HELD.get(key)
        if held not in (None, self):
            return _who()
        if held is None:  # else closing a descriptor of the file would give that claim back
            self._number = self._opened()
        try:
            parts = [0] if self._is_taken(0) else range(1, 1 + _MOST_SHARING)
            names = [self._name(part) for part in parts if self._is_taken(part)]
        finally:
            if held is None:
                self.give_back()
        more = [f"{len(names) - _MOST_SHOWN} more"] if len(names) > _MOST_SHOWN else []
        return listed([*names[:_MOST_SHOWN], *more]) or "of unknown id"

    def give_back(self) -> None:
        """Give the thing back, if it is ours."""
        number, self._number = self._number, None
        part, self._part = self._part, None
        if number is not None:
            with suppress(OSError):  # users' code may have closed it
                if part is not None:
                    os.pwrite(number, bytes(_PART), part * _PART)
                os.close(number)
        key = self._path, os.getpid()
        if _HELD.get(key) is self:
            del _HELD[key]

    def _begin(self) -> bool:
        """Open the file, unless another claim of this process has the thing."""
        if _HELD.setdefault((self._path, os.getpid()), self) is not self:
            return False
        try:
            self._number = self._opened()
        except BaseException:
            self.give_back()
            raise
        return True

    def _share(self) -> bool:
        """Take a part of those that share; then look whether one has announced that it wants all.

        In this order, since that one announces it, and then looks for those that share.
        """
        parts = range(1, 1 + _MOST_SHARING)
        return self._begin() and any(map(self._takes, parts)) and not self._is_taken(0)

    def _takes(self, part: int) -> bool:
        if not self._lock(part * _PART, _PART):
            return False
        self._part = part
        name = _who().encode(errors="replace")[:_PART].ljust(_PART, b"\0")
        with suppress(OSError):  # a full disk: the name is for messages only
            os.pwrite(self._file, name, part * _PART)
        return True

    def _lock(self, start: int, length: int) -> bool:
        import fcntl  # which Windows lacks; nothing is measured there

        try:
            with _saying_what_is_expected(self._path):
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except BlockingIOError:
            return False
        except BaseException:
            self.give_back()
            raise
        return True

    def _is_taken(self, part: int) -> bool:
        """Return whether another process has a part now."""
        try:
            os.lseek(self._file, part * _PART, os.SEEK_SET)
            os.lockf(self._file, os.F_TEST, _PART)
        except (BlockingIOError, PermissionError):
            return True
        return False

    def _name(self, part: int) -> str:
        text = os.pread(self._file, _PART, part * _PART).decode(errors="replace")
        # Anybody can write to the file, so it may hold sequences that terminals obey.
        return "".join(filter(str.isprintable, text)) or "of unknown id"

    @property
    def _file(self) -> int:
        assert self._number is not None
        return self._number

    def _opened(self) -> int:
        with _saying_what_is_expected(self._path):
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
    since = time.strftime("%Y-%m-%d %H:%M")
    command = shlex.join(["bt-bench", *sys.argv[1:]])[: _PART - 60]
    return f"{os.getpid()} ({command}, since {since})"


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
