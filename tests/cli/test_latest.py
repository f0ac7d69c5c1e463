"""Without an argument `show` and `compare` take the latest run, and say which it is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.commands import run
from support.committed import ORIGIN
from support.refusals import refused


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, of which `older` sorts last, a folder without results, and one of another kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BT_BENCH_REPORTS", raising=False)
    for name, seconds in (("older", 1_000), ("newer-run", 2_000), ("begun", 3_000)):
        folder = tmp_path / "reports" / name
        shutil.copytree(ORIGIN, folder)
        os.utime(folder / "config.yaml", (seconds, seconds))
    for path in (tmp_path / "reports" / "begun").glob("*.json.xz"):
        path.unlink()
    (tmp_path / "reports" / "notes").mkdir()
    return tmp_path / "reports"


@pytest.mark.parametrize("command", ["show", "compare"])
def test_the_latest_run_is_taken_and_named(reports: Path, command: str) -> None:
    outcome = run(command)
    assert outcome.err.startswith("bt-bench: reports/newer-run is the latest run\n")
    assert outcome.out == run(command, "reports/newer-run").out


@pytest.mark.parametrize("command", ["show", "compare"])
def test_it_is_of_the_folder_that_the_environment_names(
    reports: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    shutil.copytree(reports / "older", "elsewhere/mine")
    monkeypatch.setenv("BT_BENCH_REPORTS", "elsewhere")
    assert "elsewhere/mine is the latest run" in run(command).err


@pytest.mark.parametrize("command", ["show", "compare"])
def test_without_a_run_it_is_said_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BT_BENCH_REPORTS", raising=False)
    assert "reports/ has no run to take; expected a run folder" in refused(command)
