"""Temporary folders that cannot be made: what is missing, and how to choose another place."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from bt_bench.base import scratch_folder
from bt_bench.base.errors import UsageError
from bt_bench.results import RunFolder


@pytest.fixture
def no_locks(tmp_path, monkeypatch):
    """A file system that cannot lock, such as NFS without a lock daemon."""

    def flock(_number, _operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return "its file system cannot lock files (No locks available); expected one that can"


def test_a_file_system_without_locks(tmp_path, no_locks):
    with pytest.raises(UsageError) as caught, scratch_folder("test"):
        pass
    message = str(caught.value)
    assert message.startswith(f"cannot make a temporary file {tmp_path}/bt-bench-test-")
    assert message.endswith(f".lock: {no_locks}; set TMPDIR to another folder")


def test_a_run_on_one(tmp_path, no_locks):
    folder = RunFolder.create_exact(tmp_path / "run")
    with pytest.raises(UsageError) as caught, folder.locked():
        pass
    assert str(caught.value) == f"cannot write {folder.path}/.lock: {no_locks}"


def test_a_folder_that_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with (
        pytest.raises(UsageError, match="No such file or directory; set TMPDIR to another folder"),
        scratch_folder("test"),
    ):
        pass


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
