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
from typing import IO

ROOT = Path(__file__).resolve().parents[2]


def run_in_terminal(
    columns: int,
    command: Sequence[str],
    environment: Mapping[str, str],
    stdout: IO[bytes] | None = None,
) -> tuple[int, str]:
    """Runs a command in a terminal; its exit code, and all that it printed there.

    Args:
        columns: width of the terminal.
        command: the command.
        environment: its environment.
        stdout: a file in place of the terminal.
    """
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=its, stdout=stdout or its, stderr=its
    )
    os.close(its)
    printed = b""
    with contextlib.suppress(OSError):  # which is how a terminal ends
        while some := os.read(mine, 1 << 16):
            printed += some
    os.close(mine)
    return process.wait(), printed.decode()
