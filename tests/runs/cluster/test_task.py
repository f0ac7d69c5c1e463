"""A worker begins a shard, continues it, or says why it does not."""

from __future__ import annotations

import os
import subprocess

import pytest

from bt_bench.runs.cluster import task, versions


@pytest.fixture
def commands(monkeypatch):
    """Has commands noted in place of run."""
    found = []

    def run_kept(command, *, env, stderr):
        os.write(stderr, b"progress\n")
        found.append(command[3:])
        return subprocess.CompletedProcess(command, 5, "the screen\n", None)

    monkeypatch.setattr(task, "run_kept", run_kept)
    monkeypatch.setattr(task, "end_with_parent", lambda parent: None)
    monkeypatch.delenv(task.VISIBLE, raising=False)
    return found


def run(folder, expected=None):
    expected = versions() if expected is None else expected
    return task.run_shard(["sweep", "c"], ["sweep"], str(folder), expected)


def test_a_shard_is_begun(commands, tmp_path, monkeypatch):
    monkeypatch.setenv(task.VISIBLE, "GPU-7")
    ended = run(tmp_path / "1-of-2")
    assert commands == [["sweep", "c", "--out", str(tmp_path / "1-of-2")]]
    assert (ended["code"], ended["device"]) == (5, "GPU-7")
    assert task.succeeded(ended)
    log = (tmp_path / "1-of-2.log").read_text()
    assert "CUDA_VISIBLE_DEVICES=GPU-7: bt-bench sweep c --out" in log
    assert log.endswith("progress\nthe screen\n")
    assert ended["tail"].endswith("the screen")


def test_one_that_measured_nothing_is_begun_anew(commands, tmp_path):
    folder = tmp_path / "1-of-2"
    folder.mkdir()
    (folder / "division.json").touch()
    run(folder)
    assert commands == [["sweep", "c", "--out", str(folder)]]
    assert not folder.exists()


@pytest.mark.parametrize("visible", ["", "GPU-7"])
def test_one_that_was_begun_is_continued(commands, tmp_path, monkeypatch, visible):
    """On whichever GPU: the run names the device of each case."""
    folder = tmp_path / "1-of-2"
    folder.mkdir()
    (folder / "config.yaml").touch()
    monkeypatch.setenv(task.VISIBLE, visible)
    run(folder)
    assert commands == [["sweep", "--resume", str(folder)]]
    assert not (folder / ".lock").exists()


def test_a_folder_that_is_being_written_is_waited_for(commands, tmp_path, monkeypatch):
    folder = tmp_path / "1-of-2"
    folder.mkdir()
    monkeypatch.setattr(task, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(task, "_POLL_S", 0.0)
    with task.RunFolder(folder).locked():
        ended = run(folder)
    assert ended["code"] is None
    assert "is being written by another bt-bench process" in ended["tail"]
    assert commands == []


def test_a_worker_with_other_versions_says_so(commands, tmp_path):
    ended = run(tmp_path / "1-of-2", versions() | {"torch": "1.0", "none-such": "2"})
    assert ended["code"] is None
    assert "in place of 1.0, none-such none in place of 2; install the same" in ended["tail"]
    assert not task.succeeded(ended)
    assert commands == []


def test_versions_are_those_of_the_packages():
    assert {"Python", "bt-bench", "torch"} <= set(versions())
