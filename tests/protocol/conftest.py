"""A suite of a user's own, for tests of what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.suites import write_suite


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the smallest suite."""
    return write_suite(tmp_path / "mine")
