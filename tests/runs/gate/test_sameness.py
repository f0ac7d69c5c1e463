"""What is equal beyond doubt, and so needs no measuring: nothing short of equal trees."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.repositories import git, write

from bt_bench.runs.gate.sameness import compare_trees
from bt_bench.runs.gate.trees import Location, Tree

FILES = {"mine/one.py": "x = 1\n", "mine/deep/data.json": "{}", "README": "text"}


@pytest.fixture
def pair(tmp_path):
    """Two trees with the same files."""
    trees = []
    for name in ("base", "head"):
        write(tmp_path / name, FILES)
        top = (tmp_path / name).resolve()
        trees.append(Tree(name, "0" * 40, False, top, Location(top, None, (Path("mine"),))))
    return trees


def how(pair, **options):
    same = compare_trees(*pair, built=False, **options)
    assert not same.proved
    return same.how


def test_equal_trees(pair):
    same = compare_trees(*pair, built=False)
    assert same.proved
    assert same.how == (
        "Nothing is measured, since the trees are equal: 3 files, byte by byte, and nothing beside "
        "them but caches of Python's tools; no --build ran."
    )


def test_what_was_built_is_never_equal(pair):
    same = compare_trees(*pair, built=True)
    assert not same.proved
    assert same.how == "Everything is measured, since --build ran in both trees."


@pytest.mark.parametrize("name", ["mine/one.py", "mine/deep/data.json", "README"])
def test_any_file_that_differs_counts(pair, name):
    path = pair[1].top / name
    path.write_text(path.read_text().swapcase() + " ")
    assert how(pair) == f"Everything is measured, since the trees differ: {name}."
    path.write_text(FILES[name])
    assert compare_trees(*pair, built=False).proved


def test_a_file_of_the_same_size_and_time(pair):
    path = pair[1].top / "README"
    path.write_text("txet")
    assert "the trees differ: README." in how(pair)


def test_files_that_git_knows_nothing_of(pair):
    write(pair[1].top, {"build/lib.so": "x", ".gitignore": "build\n"})
    write(pair[0].top, {".gitignore": "build\n"})
    assert "differ: build (only in the head)." in how(pair)
    write(pair[0].top, {"gone.json": "x"})
    assert "build (only in the head), gone.json (only in the base)." in how(pair)
    for name in "abcdef":
        write(pair[1].top, {name: "x"})
    assert how(pair).endswith(
        "a (only in the head), b (only in the head), build (only in the head) and more."
    )


def test_what_can_be_executed(pair):
    (pair[1].top / "README").chmod(0o755)
    assert "differ: README." in how(pair)


def test_an_empty_folder(pair):
    (pair[1].top / "flag").mkdir()
    assert "flag (only in the head)" in how(pair)


def test_a_file_in_the_place_of_a_folder(pair):
    write(pair[0].top, {"x/y": ""})
    write(pair[1].top, {"x": ""})
    assert "differ: x." in how(pair)


@pytest.mark.parametrize(
    ("target", "equal"),
    [("mine/one.py", True), ("../outside", False), ("/etc/hostname", True), ("..", False)],
)
def test_symlinks(pair, target, equal):
    """A relative one that leads out of its tree leads to another place from another tree."""
    for tree in pair:
        (tree.top / "link").symlink_to(target)
    assert compare_trees(*pair, built=False).proved == equal
    (pair[1].top / "link").unlink()
    (pair[1].top / "link").symlink_to("README")
    assert "differ: link." in how(pair)


def test_what_cannot_be_compared_is_not_equal(pair):
    import os

    for tree in pair:
        os.mkfifo(tree.top / "pipe")
    assert "differ: pipe." in how(pair)


@pytest.mark.parametrize(
    "name", [".git/HEAD", "mine/__pycache__/one.pyc", ".mypy_cache/x", ".ruff_cache/y"]
)
def test_what_nothing_reads_is_passed_over(pair, name):
    write(pair[1].top, {name: "x"})
    assert compare_trees(*pair, built=False).proved


@pytest.mark.parametrize("name", ["mine/__pycache__/more.json", "x/__pycache__/one.so"])
def test_what_no_tool_writes_into_its_cache_counts(pair, name):
    write(pair[1].top, {name: "x"})
    assert "(only in the head)" in how(pair)


def test_a_cache_that_was_committed_counts(pair):
    write(pair[0].top, {".ruff_cache/tuning.json": "1"})
    write(pair[1].top, {".ruff_cache/tuning.json": "2"})
    assert "differ: .ruff_cache/tuning.json." in how(pair)
    (pair[0].top / ".ruff_cache/tuning.json").unlink()
    (pair[0].top / ".ruff_cache").rmdir()
    git(pair[1].top, "init", "-q")
    assert compare_trees(*pair, built=False).proved
    git(pair[1].top, "add", "-A")
    assert "differ: .ruff_cache (only in the head)." in how(pair)


def test_sources_beside_a_virtual_environment_count(pair, monkeypatch):
    """As of `python -m venv .`: the environment is bin, lib and the like."""
    top = pair[1].top
    monkeypatch.setattr(sys, "prefix", str(top))
    write(top, {"lib/python3/x.py": "", "pyvenv.cfg": "", "bin/python": "", "share/stamp": ""})
    (top / "lib64").symlink_to("lib")  # as `venv` does on Linux
    assert compare_trees(*pair, built=False).proved
    write(top, {"mine/one.py": "x = 2\n"})
    assert "differ: mine/one.py." in how(pair)


def test_a_file_is_no_folder_that_is_passed_over(pair, monkeypatch):
    write(pair[0].top, {"envs": "x"})
    write(pair[1].top, {"envs/v/lib/x.py": ""})
    monkeypatch.setattr(sys, "prefix", str(pair[1].top / "envs/v"))
    assert "differ: envs." in how(pair)


def test_the_environment_of_python_and_the_folder_of_the_gate_are_passed_over(pair, monkeypatch):
    top = pair[1].top
    write(top, {".venv/lib/x.py": "", "reports/gate-1/recording.json": ""})
    write(top, {".venv/lib/x.py": ""})
    assert "differ: .venv (only in the head), reports" in how(pair)
    monkeypatch.setattr(sys, "prefix", str(top / ".venv"))
    assert "differ: reports (only in the head)." in how(pair)
    assert compare_trees(*pair, built=False, ours=top / "reports/gate-1").proved
    write(top, {"reports/gate-0/verdicts.json": "x"})
    assert "differ: reports/gate-0 (only in the head)." in how(pair, ours=top / "reports/gate-1")
