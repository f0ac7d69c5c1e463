"""Results name the commit of the checkout whose code made them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.repositories import commit, git

import bt_bench

PACKAGE = Path(bt_bench.__file__).resolve().parent
READ = (
    "from bt_bench.worker.machine import environment as e;"
    "print(e._git('rev-parse', 'HEAD'), e._is_dirty())"
)


def read_in(tree: Path) -> str:
    kernels = PACKAGE.parent / "kernels"
    environment = os.environ | {"PYTHONPATH": f"{tree}:{kernels}"}
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
    assert read_in(tree) == f"{head} False"
    (tree / "bt_bench" / "__init__.py").write_text("__version__ = '1'\n")
    assert read_in(tree) == f"{head} True"


def test_what_is_no_checkout_has_no_commit(tree: Path) -> None:
    git(tree.parent, "init", "-q")  # of whoever installed it there
    commit(tree.parent, "all")
    assert read_in(tree) == "None None"
