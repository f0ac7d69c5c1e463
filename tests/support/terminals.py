"""Terminals of a test's own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_in_terminal(
    columns: int, command: Sequence[str], environment: Mapping[str, str]
) -> tuple[int, str]:
    """Runs a command in a terminal; its exit code, and all that it printed."""
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    printed = b""
    with contextlib.suppress(OSError):  # which is how a terminal ends
        while some := os.read(mine, 1 << 16):
            printed += some
    os.close(mine)
    return process.wait(), printed.decode()
