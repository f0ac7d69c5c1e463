"""Git is called on exactly a folder, by a program outside of the trees that it is asked about."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.repositories import git as run
from support.repositories import repository

from bt_bench.base import git
from bt_bench.base.errors import UsageError


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A checkout, one below it, a folder beside them, and each with a program."""
    for name in ("tree/bin", "tree/below/bin", "tree2/bin", "beside/bin"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "git").write_text("#!/bin/sh\n")
        (folder / "git").chmod(0o755)
    (tmp_path / "tree/.git").mkdir()
    (tmp_path / "tree/below/.git").write_text("gitdir: elsewhere\n")
    monkeypatch.chdir(tmp_path / "beside")
    return tmp_path


def path_for(monkeypatch, folder, *entries):
    monkeypatch.setenv("PATH", ":".join(map(str, entries)))
    return git.git_environment(folder)["PATH"].split(":")


def test_no_entry_lies_in_the_checkout_or_is_relative(places, monkeypatch):
    entries = [places / "tree/bin", "bin", "", places / "tree2/bin", places / "beside/bin"]
    found = path_for(monkeypatch, places / "tree/below/..", *entries)
    assert found == [str(places / "tree2/bin"), str(places / "beside/bin")]
    # Of a checkout within another one, only the inner one counts.
    found = path_for(
        monkeypatch, places / "tree/below", places / "tree/below/bin", places / "tree/bin"
    )
    assert found == [str(places / "tree/bin")]


def test_links_are_followed(places, monkeypatch):
    (places / "link").symlink_to(places / "tree/bin")
    (places / "beside/bin/git").unlink()
    (places / "beside/bin/git").symlink_to(places / "tree/bin/git")
    found = path_for(monkeypatch, places / "tree", places / "link", places / "beside/bin")
    assert found == [""]
    with pytest.raises(FileNotFoundError):
        git.git_command(places / "tree", "status")


def test_where_the_root_is_a_checkout_nothing_lies_outside(places, monkeypatch):
    lexists = git.os.path.lexists
    monkeypatch.setattr(git.os.path, "lexists", lambda path: path == "//.git" or lexists(path))
    assert path_for(monkeypatch, places / "beside", places / "tree2/bin") == [""]


def test_trees_are_kept_out_too(places, monkeypatch):
    monkeypatch.setenv("PATH", str(places / "tree/bin"))
    found = git.git_environment(Path("/"), [places / "tree"])["PATH"]
    assert found == ""


def test_no_variable_of_a_hook_or_an_outer_git_is_followed(tmp_path, monkeypatch):
    """Git lists those that belong to one repository; its settings stay."""
    top = repository(tmp_path / "own", {"mine.py": "x = 1\n"})
    head = run(top, "rev-parse", "HEAD")
    command = ["git", "rev-parse", "--local-env-vars"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    names = [name for name in listed if not name.startswith("GIT_CONFIG")]
    assert "GIT_OBJECT_DIRECTORY" in names
    for name in (*names, "GIT_NAMESPACE", "GIT_LITERAL_PATHSPECS"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_LITERAL_PATHSPECS", "1")
    assert git.run_git(top, "rev-parse", "HEAD").decode().strip() == head
    assert git.run_git(top, "ls-files", "--", ":(top,literal)mine.py") == b"mine.py\n"
    assert git.run_git(top, "status", "--porcelain") == b""
    assert not {*names} & {*git.without_another_git()}


def test_a_git_that_does_not_run_is_named(tmp_path, monkeypatch):
    (tmp_path / "git").write_text("no program")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"git cannot be run: Exec format error: .*/git; expected"):
        git.run_git(Path("/"), "status")
