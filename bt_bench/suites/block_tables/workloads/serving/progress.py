"""Progress of reading a file that takes long."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import IO

from bt_bench.base import one_line

SILENT_S = 10.0
"""Seconds between two lines of progress, and before the first one."""


class ReadingProgress:
    """Lines on stderr about how much of a file has been read, if that takes long.

    Steps are scheduled while a trace is read, so that their time is in it.

    Args:
        name: name of the file.
        file: the file as it is on disk.
    """

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self._name = name
        self._file = file
        self._told = time.monotonic()

    def tell(self, requests: int) -> None:
        """Print a line, if the last one was long ago.

        Args:
            requests: how many have been read.
        """
        now = time.monotonic()
        if now - self._told < SILENT_S:
            return
        self._told = now
        size = os.fstat(self._file.fileno()).st_size
        share = 100 * self._file.tell() // max(size, 1)
        text = one_line(f"{self._name}: read {share} %, {requests:,} requests")
        with suppress(OSError, ValueError, AttributeError):  # closed, or there is none
            sys.stderr.write(text.encode("ascii", "replace").decode() + "\n")
            sys.stderr.flush()
