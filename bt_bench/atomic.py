"""Files that are there whole or not at all, whenever the process is killed."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


def write_text(path: Path, text: str) -> None:
    """Writes a file so that a reader sees its old text or its new one, never half of it.

    A killed process may leave a hidden `.<name>.….tmp` behind, which nothing reads.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    temporary = temporary.with_name(temporary.name + TEMPORARY_SUFFIX)
    try:
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # a Ctrl-C here must not leave the temporary file either
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Makes a rename survive a power cut, where the system can open folders at all."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
