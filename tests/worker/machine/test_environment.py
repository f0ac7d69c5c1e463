"""Results name the commit of the checkout whose code made them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.repositories import commit, git, repository

import bt_bench
from bt_bench.worker.machine.environment import read_machine

PACKAGE = Path(bt_bench.__file__).resolve().parent
READ = (
    "from bt_bench.worker.machine.environment import read_machine; found = read_machine();"
    "print(found['commit'], found['dirty'], found.get('commit_unknown'))"
)


def read_in(tree: Path, **changed: str) -> str:
    kernels = PACKAGE.parent / "kernels"
    environment = os.environ | {"PYTHONPATH": f"{tree}:{kernels}"} | changed
    command = [sys.executable, "-c", READ]
    done = subprocess.run(
        command, cwd=tree.parent, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "tree" / "bt_bench", ignore=ignored)
    return tmp_path / "tree"


def test_the_commit_is_that_of_the_checkout(tree: Path) -> None:
    git(tree, "init", "-q")
    (tree / ".gitignore").write_text("__pycache__\n")
    head = commit(tree, "all")
    assert read_in(tree) == f"{head} False None"
    (tree / "bt_bench" / "__init__.py").write_text("__version__ = '1'\n")
    assert read_in(tree) == f"{head} True None"


def test_what_is_no_checkout_has_no_commit(tree: Path) -> None:
    git(tree.parent, "init", "-q")  # of whoever installed it there
    commit(tree.parent, "all")
    assert read_in(tree) == "None None None"


def test_where_git_refuses_the_checkout_its_remedy_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = repository(tmp_path / "tree", {"bt_bench/__init__.py": ""})
    monkeypatch.setattr(bt_bench, "__file__", str(top / "bt_bench/__init__.py"))
    assert "commit_unknown" not in read_machine()
    # As in git's own tests, for a checkout that another user owns.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    found = read_machine()
    assert (found["commit"], found["dirty"]) == (None, None)
    lines = found["commit_unknown"].splitlines()
    assert lines[0] == f"git: fatal: detected dubious ownership in repository at '{top}'"
    assert lines[-1].strip() == f"git config --global --add safe.directory {top}"
    monkeypatch.setenv("BT_BENCH_COMMIT", "0123")
    assert "commit_unknown" not in read_machine()
