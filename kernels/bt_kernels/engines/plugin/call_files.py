"""Files of recorded calls, of bounded size."""

from __future__ import annotations

import os
from pathlib import Path

from bt_kernels.engines.recordings import Header

_MOST_FILES = 10_000


class CallFile:
    """A file of recorded calls that is replaced when it is full; the full one is kept as `FILE.1`.

    Args:
        path: where to write; the process and a number come before its suffix. No file is
            overwritten, but for a full one.
        header: the first line of each file.
        max_bytes: the size of all frames from which on a file is full.

    Raises:
        OSError: when the file cannot be created. The other methods raise it as well.
    """

    def __init__(self, path: Path, header: Header, max_bytes: int) -> None:
        self._line, self._max_bytes = header.to_line(), max_bytes
        self._pid = os.getpid()
        for number in range(1, _MOST_FILES):
            self.path = path.with_name(f"{path.stem}.{self._pid}-{number}{path.suffix}")
            try:
                self._open()
            except FileExistsError:
                continue
            return
        raise FileExistsError(f"{path} has {_MOST_FILES:,} files of other processes beside it")

    @property
    def is_full(self) -> bool:
        """Return whether the next frame belongs into another file."""
        return self._size >= self._max_bytes

    @property
    def belongs_to_parent(self) -> bool:
        """Return whether this process was forked from the one that writes."""
        return os.getpid() != self._pid

    def write(self, frame: bytearray) -> None:
        """Append a frame. A full disk cuts it, and readers leave it out."""
        rest = memoryview(frame)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._size += len(frame)

    def replace(self) -> None:
        """Keep the file as `FILE.1`, and begin another one."""
        self._file.close()
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        self._open()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self) -> None:
        # Unbuffered, so that a forked process has nothing to write.
        self._file = self.path.open("xb", buffering=0)
        self._file.write(self._line)
        self._size = 0
