"""Committed runs, whose result files are packed."""

from __future__ import annotations

import lzma
from pathlib import Path

ORIGIN = Path(__file__).parents[2] / "reports" / "h100" / "origin"


def unpack(folder: Path) -> None:
    """Unpack all files of a folder, as `xz -d` does."""
    for packed in folder.glob("*.xz"):
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
        packed.unlink()
