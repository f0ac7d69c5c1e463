"""Fixtures of tests of commands."""

from __future__ import annotations

import pytest
from support.commands import TINY


@pytest.fixture
def config(tmp_path):
    """The path of a config of two tiny cases."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture
def kernels(tmp_path):
    """A folder for variants."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    return folder
