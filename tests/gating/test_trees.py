"""Worktrees of the base: made, found, gone again; and the user's checkout left alone."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from repositories import commit, git, repository, write

from bt_bench.errors import UsageError
from bt_bench.gating.trees import base_tree, build, locate, working_tree

VARIANT = '"""A variant."""\nfrom bt_kernels.variants.fused import Variant as Variant\n'
OWN = {"mine/quick.py": VARIANT, "README": "x\n"}
SHIPPED = {
    "src/kernels/bt_kernels/__init__.py": "",
    "src/kernels/bt_kernels/variants/__init__.py": "",
    "src/kernels/bt_kernels/variants/baseline.py": VARIANT,
}


@pytest.fixture
def own(tmp_path):
    return repository(tmp_path / "own", OWN)


def worktrees(top):
    return len(git(top, "worktree", "list").splitlines())


def test_the_base_lies_in_a_worktree_that_is_gone_after(own):
    first = git(own, "rev-parse", "HEAD")
    write(own, {"mine/quick.py": VARIANT + "# second\n"})
    commit(own, "second")
    write(own, {"mine/quick.py": VARIANT + "# not committed\n", "staged": "x"})
    git(own, "add", "staged")
    before = git(own, "status", "--porcelain")
    location = locate(own, [own / "mine"])
    with base_tree(location, "HEAD~1") as tree:
        assert (tree.commit, tree.dirty) == (first, False)
        assert tree.label == f"HEAD~1 ({first[:8]})"
        assert (tree.top / "mine/quick.py").read_text() == VARIANT
        assert worktrees(own) == 2
        top = tree.top
    assert not top.exists()
    assert worktrees(own) == 1
    assert git(own, "status", "--porcelain") == before
    head = working_tree(location)
    assert head.dirty
    assert head.variants()["quick"].path == own / "mine/quick.py"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_a_worktree_is_gone_whatever_ends_the_block(own, error):
    with pytest.raises(error), base_tree(locate(own, [own / "mine"]), "main"):
        raise error
    assert worktrees(own) == 1


def test_a_worktree_whose_folder_is_lost_is_forgotten(own):
    with base_tree(locate(own, [own / "mine"]), "main") as tree:
        shutil.rmtree(tree.top)
    assert worktrees(own) == 1


def test_hooks_of_the_checkout_do_not_run(own, tmp_path):
    hook = own / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    with base_tree(locate(own, [own / "mine"]), "main"):
        pass
    assert not (tmp_path / "ran").exists()


def test_within_a_hook_git_looks_at_the_right_repository(own, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    with base_tree(locate(own, [own / "mine"]), "main") as tree:
        assert (tree.top / "README").exists()


def test_it_works_from_a_subfolder(tmp_path, monkeypatch):
    top = repository(tmp_path / "shipped", SHIPPED)
    (top / "src/deep").mkdir()
    monkeypatch.chdir(top / "src/deep")
    location = locate(Path.cwd())
    assert location.top == top.resolve()
    assert location.kernels == Path("src/kernels")
    found = working_tree(location).variants()
    assert found["baseline"].kernels == top.resolve() / "src/kernels"


def test_a_folder_of_variants_and_the_root_of_kernels_are_told_apart(tmp_path):
    top = repository(tmp_path / "both", OWN | SHIPPED)
    location = locate(top, [top / "mine", top / "src/kernels"])
    assert (location.kernels, location.folders) == (Path("src/kernels"), (Path("mine"),))
    # Without being named, the tracked root is found; one that git ignores, as in a venv, is not.
    assert locate(top, [top / "mine"]).kernels == Path("src/kernels")
    venv = repository(tmp_path / "venv", OWN | {".gitignore": "src/\n"})
    write(venv, SHIPPED)
    assert locate(venv, [venv / "mine"]).kernels is None


def test_a_repository_without_kernels_is_refused(own):
    with pytest.raises(UsageError, match=r"holds no kernels .* pass --kernels DIR"):
        locate(own)


def test_no_repository(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(
        UsageError, match="no git repository to take a base revision from: git says"
    ):
        locate(tmp_path, [tmp_path / "mine"])
    with pytest.raises(UsageError, match=r"--kernels .*nowhere: no such folder"):
        locate(tmp_path, [tmp_path / "nowhere"])


def test_folders_of_two_repositories(own, tmp_path):
    other = repository(tmp_path / "other", OWN)
    with pytest.raises(UsageError, match="is not in the repository"):
        locate(own, [own / "mine", other / "mine"])


def test_no_git(own, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="git is not installed"):
        locate(own, [own / "mine"])


@pytest.mark.parametrize("ref", ["nowhere", "--help", "main:README", ""])
def test_an_unknown_revision(own, ref):
    with (
        pytest.raises(UsageError, match=f"--base {ref}: git says: fatal: .*expected a branch"),
        base_tree(locate(own, [own / "mine"]), ref),
    ):
        pass
    assert worktrees(own) == 1


def test_a_shallow_clone_says_how_to_get_the_revision(own, tmp_path):
    first = git(own, "rev-parse", "HEAD")
    commit(own, "second")
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{own}", str(shallow))
    with (
        pytest.raises(
            UsageError, match=r"clone is shallow: .*git fetch --unshallow.*fetch-depth: 0"
        ),
        base_tree(locate(shallow, [shallow / "mine"]), first),
    ):
        pass


def test_a_folder_that_the_base_lacks(own):
    write(own, {"new/fast.py": VARIANT})
    commit(own, "second")
    with (
        base_tree(locate(own, [own / "new"]), "HEAD~1") as tree,
        pytest.raises(UsageError, match=r"HEAD~1 .* has no folder new; .* another --base"),
    ):
        tree.variants()


def test_messages_name_the_revision_and_no_temporary_folder(own):
    with base_tree(locate(own, [own / "mine"]), "main") as tree:
        text = tree.named(f"{tree.top}{os.sep}mine/quick.py:3: it does not import")
    assert text == f"{tree.label}: mine/quick.py:3: it does not import"


def test_a_build_runs_in_the_tree(own):
    with base_tree(locate(own, [own / "mine"]), "main") as tree:
        build(tree, "echo made > built")
        assert (tree.top / "built").read_text() == "made\n"
    assert not (own / "built").exists()


def test_a_build_that_fails_shows_the_end_of_its_output(own):
    tree = working_tree(locate(own, [own / "mine"]))
    with pytest.raises(UsageError) as caught:
        build(tree, "seq 100; echo broken >&2; exit 3")
    message = str(caught.value)
    assert message.startswith("working tree: --build 'seq 100; echo broken >&2; exit 3' ended with")
    assert "exit code 3" in message
    assert message.endswith("  99\n  100\n  broken")
    assert len(message.splitlines()) == 21
    with pytest.raises(UsageError, match="it printed nothing"):
        build(tree, "exit 1")


def test_an_interrupted_build_ends_what_the_shell_has_started(own, monkeypatch, tmp_path):
    tree = working_tree(locate(own, [own / "mine"]))
    left = tmp_path / "pid"

    def interrupted(_process):
        deadline = time.monotonic() + 30
        while not (left.exists() and left.read_text().strip()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen.communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(tree, f"sleep 600 & echo $! > '{left}'; wait")
    deadline = time.monotonic() + 30
    while runs(int(left.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs(pid):
    """Whether a process is there, and no mere entry of one that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
