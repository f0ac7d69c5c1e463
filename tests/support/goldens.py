"""Comparison of whole texts with files; `UPDATE_GOLDENS=1` writes them anew, to be reviewed."""

from __future__ import annotations

import os
from pathlib import Path


def assert_golden(text: str, path: Path) -> None:
    """Fails unless the file holds exactly this text."""
    if os.environ.get("UPDATE_GOLDENS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    assert text == path.read_text(encoding="utf-8")
