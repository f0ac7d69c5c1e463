"""Stored baselines: found, listed, replaced, and no name leads out of their folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios import three_cases

from bt_bench.baselines import baseline_names, baseline_path, find_baseline, save_baseline
from bt_bench.errors import UsageError
from bt_bench.store import RunFolder, read_result, write_result


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return write_result(RunFolder.create_exact(tmp_path / "run"), three_cases())


def test_saved_and_found(tmp_path: Path, result: Path) -> None:
    path = save_baseline(tmp_path, "main", result)
    assert path == tmp_path / "baselines" / "main.json" == find_baseline(tmp_path, "main")
    assert read_result(path) == three_cases()
    assert baseline_names(tmp_path) == ["main"]


def test_replaced(tmp_path: Path, result: Path) -> None:
    save_baseline(tmp_path, "main", result)
    result.write_text(result.read_text().replace("quick-", "later-"))
    save_baseline(tmp_path, "main", result)
    assert read_result(find_baseline(tmp_path, "main")).run_id.startswith("later-")


def test_unknown(tmp_path: Path, result: Path) -> None:
    with pytest.raises(UsageError, match=r"--baseline mian: no such baseline in .*there is none"):
        find_baseline(tmp_path, "mian")
    for name in ("main", "v1"):
        save_baseline(tmp_path, name, result)
    with pytest.raises(UsageError, match=r"did you mean 'main'\? It holds main, v1\."):
        find_baseline(tmp_path, "mian")


@pytest.mark.parametrize("name", ["", "../main", "a/b", ".hidden", "a b", "x" * 101])
def test_names_that_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a file name"):
        baseline_path(tmp_path, name)


def test_a_folder_that_cannot_be_made(tmp_path: Path, result: Path) -> None:
    (tmp_path / "baselines").touch()
    with pytest.raises(UsageError, match="cannot make"):
        save_baseline(tmp_path, "main", result)
