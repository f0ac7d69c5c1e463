"""Folders for temporary files, and a machine without any."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from bt_bench.base import scratch_folder
from bt_bench.base.errors import UsageError


def test_where_nothing_can_be_written_a_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a read-only root and no volume for temporary files."""
    tried = ["/tmp", "/var/tmp", "/work"]

    def refuse() -> str:
        raise FileNotFoundError(2, f"No usable temporary directory found in {tried}")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    with pytest.raises(UsageError) as caught, scratch_folder("test"):
        pass
    assert str(caught.value) == (
        f"no folder for temporary files can be written to; tried {tried}. Set TMPDIR to a folder "
        "that can, with a few hundred MiB free"
    )


def test_it_is_where_tmpdir_says_and_is_gone_afterwards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder("test") as folder:
        assert folder.parent == tmp_path.resolve()
    assert list(tmp_path.iterdir()) == []
