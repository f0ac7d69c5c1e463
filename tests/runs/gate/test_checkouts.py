"""Checkouts of both revisions: made and gone again, and the user's repository left alone."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.processes import runs, wait_for
from support.repositories import commit, git, repository, write

from bt_bench.base.errors import UsageError
from bt_bench.runs.gate.checkouts import base_tree, build, copied
from bt_bench.runs.gate.trees import locate, working_tree

VARIANT = '"""A variant."""\nfrom bt_kernels.variants.fused import Variant as Variant\n'
OWN = {"mine/quick.py": VARIANT, "README": "x\n"}


@pytest.fixture
def own(tmp_path):
    return repository(tmp_path / "own", OWN)


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return path


def inside(folder):
    """All that a folder holds, with its contents, but for what reading changes."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_the_base_lies_in_a_checkout_that_is_gone_after(own, scratch):
    first = git(own, "rev-parse", "HEAD")
    write(own, {"mine/quick.py": VARIANT + "# second\n"})
    commit(own, "second")
    write(own, {"mine/quick.py": VARIANT + "# not committed\n", "staged": "x"})
    git(own, "add", "staged")
    before = inside(own)
    location = locate(own, [own / "mine"])
    with base_tree(location, "HEAD~1") as tree:
        assert (tree.commit, tree.dirty) == (first, False)
        assert tree.label == f"HEAD~1 ({first[:8]})"
        assert (tree.top / "mine/quick.py").read_text() == VARIANT
        assert tree.top.is_relative_to(scratch)
        assert inside(own) == before
    assert inside(own) == before
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("name", [b"no UTF-8 \xff", b"ends in a space "])
def test_a_repository_in_a_folder_of_any_name(tmp_path, name):
    own = repository(tmp_path / os.fsdecode(name), OWN)
    with copy_of(own) as top:
        assert files_in(top.with_name("base")) == files_in(top) == files_in(own)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_a_checkout_is_gone_whatever_ends_the_block(own, scratch, error):
    with pytest.raises(error), base_tree(locate(own, [own / "mine"]), "main"):
        raise error
    assert list(scratch.iterdir()) == []


def test_a_checkout_whose_folder_is_lost_is_no_trouble(own, scratch):
    with base_tree(locate(own, [own / "mine"]), "main") as tree:
        shutil.rmtree(tree.top)
    assert list(scratch.iterdir()) == []


def test_git_in_the_checkout_knows_the_repository(own):
    """As a build may ask it, such as one that takes its version from the tags."""
    first = git(own, "rev-parse", "HEAD")
    git(own, "tag", "v1.0")
    commit(own, "second")
    with base_tree(locate(own, [own / "mine"]), "HEAD~1") as tree:
        build(tree, "git describe --tags > described; git rev-parse HEAD >> described")
        assert (tree.top / "described").read_text() == f"v1.0\n{first}\n"
        assert not (own / "described").exists()
        assert git(tree.top, "status", "--porcelain") == "?? described"
        assert git(tree.top, "rev-parse", "--show-toplevel") == str(tree.top)


def test_the_checkout_is_as_the_repository_asks_for_it(own):
    """End-of-line rules and a filter of its own configuration; nothing is left out."""
    git(own, "config", "filter.louder.smudge", "tr a-z A-Z")
    git(own, "config", "filter.louder.clean", "tr A-Z a-z")
    attributes = "* text eol=crlf\nloud filter=louder\nREADME export-ignore\n"
    write(own, {".gitattributes": attributes, "loud": "words\n"})
    commit(own, "second")
    with base_tree(locate(own, [own / "mine"]), "HEAD") as tree:
        assert (tree.top / "README").read_bytes() == b"x\r\n"
        assert (tree.top / "loud").read_bytes() == b"WORDS\r\n"


def test_the_base_of_a_submodule_and_of_a_linked_worktree(own, tmp_path):
    outer = repository(tmp_path / "outer", {"a": "x"})
    allowed = ("-c", "protocol.file.allow=always")
    git(outer, *allowed, "submodule", "--quiet", "add", str(own), "sub")
    git(own, "worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    for top in (outer / "sub", tmp_path / "linked"):
        before = inside(outer), inside(own)
        with base_tree(locate(top, [top / "mine"]), "HEAD") as tree:
            assert (tree.top / "mine/quick.py").read_text() == VARIANT
            assert git(tree.top, "status", "--porcelain") == ""
        assert (inside(outer), inside(own)) == before


def test_the_base_has_the_folders_that_the_checkout_has(own, tmp_path):
    write(own, {"big/file": "x", "mine/more.py": VARIANT})
    commit(own, "second")
    git(own, "sparse-checkout", "set", "mine")
    with base_tree(locate(own, [own / "mine"]), "HEAD") as tree:
        assert sorted(path.name for path in tree.top.iterdir()) == [".git", "README", "mine"]
        assert git(tree.top, "status", "--porcelain") == ""


def files_in(folder):
    """The files of a folder: their contents, where links lead, and what can be executed."""
    return {
        str(path.relative_to(folder)): path.readlink()
        if path.is_symlink()
        else (path.read_bytes(), os.access(path, os.X_OK))
        for path in folder.rglob("*")
        if ".git" not in path.parts and (path.is_symlink() or path.is_file())
    }


@contextmanager
def copy_of(own):
    """The copy of a repository's working tree."""
    location = locate(own, [own / "mine"])
    with base_tree(location, "HEAD") as base:
        head = copied(working_tree(location), base)
        assert len(str(head.top)) == len(str(base.top))
        yield head.top


CHANGES = {
    "changed": "echo changed >> README",
    "staged": "echo changed >> README; git add README; echo more >> README",
    "added": "mkdir -p new/deep; echo x > new/deep/x",
    "added, to be committed": "mkdir new; echo x > new/x; git add new",
    "intended": "echo x > new; git add --intent-to-add new",
    "gone": "rm README deep/er/x",
    "gone, committed as such": "git rm -q README",
    "renamed": "git mv README READ.ME",
    "can be executed": "chmod +x README",
    "a link": "ln -s README link; ln -s nowhere dangling",
    "a link in place of a file": "rm README; ln -s mine README",
    "a file in place of a link": "rm way; echo x > way",
    "a folder in place of a link": "rm way; mkdir way; echo x > way/x",
    "a link in place of a folder": "rm -r deep; ln -s mine deep",
    "a file in place of a folder": "rm -r deep; echo x > deep",
    "a folder in place of a file": "rm README; mkdir README; echo x > README/x",
    "told to be overlooked": "git update-index --assume-unchanged README; echo > README",
    "tracked though ignored": "echo x > skipped/x; git add -f skipped/x; echo y > skipped/x",
    "other ends of lines": "printf 'a\\r\\n' > README; echo '* text eol=lf' > .gitattributes",
    "a name that is no text": "echo x > \"$(printf 'odd\\377\\n.py')\"",
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_copy_has_the_files_of_the_working_tree(own, what):
    write(own, {".gitignore": "skipped/*\n", "deep/er/x": "x", "deep/er/y": "y"})
    (own / "way").symlink_to("mine")
    (own / "skipped").mkdir()
    commit(own, "second")
    subprocess.run(["/bin/sh", "-ec", CHANGES[what]], cwd=own, check=True)
    before = inside(own)
    with copy_of(own) as top:
        assert files_in(top) == files_in(own)
    assert inside(own) == before


NOT_COPIED = [".venv/lib/x.py", "mine/__pycache__/x.pyc", ".mypy_cache/x", "tmp/x", "out/lib.so"]


def test_the_copy_lacks_what_is_installed_temporary_or_ignored_unless_git_tracks_it(
    own, monkeypatch
):
    monkeypatch.setattr(sys, "prefix", str(own / ".venv"))
    (own / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(own / "tmp"))
    write(own, {".gitignore": "out\n"} | dict.fromkeys(NOT_COPIED, "x"))
    with copy_of(own) as top:
        assert files_in(top).keys() == {"README", ".gitignore", "mine/quick.py"}
        git(own, "add", "-f", *NOT_COPIED)
        write(own, dict.fromkeys(NOT_COPIED, "y"))
    with copy_of(own) as top:
        assert all((top / name).read_text() == "y" for name in NOT_COPIED)


def test_git_in_the_copy_sees_the_changes(own):
    git(own, "tag", "v1.0")
    write(own, {"README": "changed\n", "new": "x"})
    with copy_of(own) as top:
        assert git(top, "status", "--porcelain").splitlines() == ["M README", "?? new"]
        assert git(top, "describe", "--dirty", "--tags") == "v1.0-dirty"


def test_submodules_are_checked_out_in_both_trees_as_far_as_the_repository_has_them(own, tmp_path):
    """A build that updates them finds nothing to do, and leaves changes in them alone."""
    inner = repository(tmp_path / "inner", {"a": "1\n", "gone": "x"})
    outer = repository(tmp_path / "outer", OWN)
    allowed = ("-c", "protocol.file.allow=always")
    git(outer, *allowed, "submodule", "--quiet", "add", str(inner), "sub")
    commit(outer, "with a submodule")
    git(outer, *allowed, "submodule", "--quiet", "add", str(inner), "more/new")
    write(outer, {"sub/a": "2\n", "sub/b": "new\n"})
    (outer / "sub/gone").unlink()
    before = inside(outer)
    with base_tree(locate(outer, [outer / "mine"]), "HEAD") as base:
        head = copied(working_tree(base.location), base)
        assert files_in(base.top / "sub") == files_in(inner)
        assert not (base.top / "more").exists()
        for tree in (base, head):
            build(tree, "git submodule update --init")
        assert files_in(head.top) == files_in(outer)
        assert inside(outer) == before


def test_a_copy_that_finds_no_room_says_what_helps(own, monkeypatch):
    def full(source, target, **_):
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    write(own, {"data": "x"})
    monkeypatch.setattr("shutil.copy", full)
    with (
        pytest.raises(
            UsageError, match=r"working tree: cannot be copied: .*No space left .*head/data.*TMPDIR"
        ),
        copy_of(own),
    ):
        pass


def test_a_copy_that_would_fill_the_disk_is_not_begun(own, monkeypatch):
    monkeypatch.setattr("shutil.copy", lambda *_, **__: pytest.fail("it was begun"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2999))
    write(own, {"data": "x" * 2000, "more": "x" * 1000, ".gitignore": "ignored", "ignored": "x"})
    said = r"git neither tracks nor ignores have 2\.9\d+ KiB, data alone 1\.953 KiB; expected"
    with pytest.raises(UsageError, match=said), copy_of(own):
        pass


def test_a_commit_that_cannot_be_checked_out_is_named_as_that_of_the_working_tree(own):
    write(own, {".gitattributes": "*.dat filter=lost\n", "x.dat": "x"})
    commit(own, "second")
    git(own, "config", "filter.lost.clean", "cat")
    git(own, "config", "filter.lost.smudge", "false")
    git(own, "config", "filter.lost.required", "true")
    location = locate(own, [own / "mine"])
    with (
        base_tree(location, "HEAD~1") as base,
        pytest.raises(UsageError, match=r"(?s)working tree: cannot be copied: git: .*x\.dat"),
    ):
        copied(working_tree(location), base)


HOOKS = ("post-checkout", "post-index-change", "pre-commit", "reference-transaction")


def test_no_hook_and_no_monitor_runs(own, tmp_path):
    """Of any call of git that a gate makes."""
    ran = tmp_path / "ran"
    for name in (*HOOKS, "monitor"):
        hook = own / f".git/hooks/{name}"
        hook.write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        hook.chmod(0o755)
    git(own, "config", "core.fsmonitor", str(own / ".git/hooks/monitor"))
    git(own, "status")
    assert "monitor" in ran.read_text()  # it would run
    ran.unlink()
    write(own, {"README": "changed\n"})
    location = locate(own, [own / "mine"])
    assert working_tree(location).dirty
    with base_tree(location, "main") as tree:
        assert (tree.top / "README").read_text() == "x\n"
        copied(working_tree(location), tree)
    assert not ran.exists()


OWNER = """\
import sys, time
from pathlib import Path
from bt_bench.runs.gate.checkouts import base_tree, build, copied
from bt_bench.runs.gate.trees import locate
own = Path(sys.argv[1])
with base_tree(locate(own, [own / "mine"]), "main") as tree:
    print(tree.top, flush=True)
    if len(sys.argv) > 2:
        build(tree, sys.argv[2])
    sys.stdin.read()
"""


def owner(own, *command):
    """A process that has a checkout of the base, and where that is."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(own), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_gate_left_is_gone_with_the_next_and_a_living_one_keeps_its_own(own, scratch):
    mine = scratch / "bt-bench-gate-mine.d"  # without a lock beside it: not ours
    mine.mkdir()
    before = inside(own)
    killed, left = owner(own)
    living, kept = owner(own)
    with killed, living:
        killed.kill()
        killed.wait()
        assert left.is_dir()
        with base_tree(locate(own, [own / "mine"]), "main") as tree:
            assert not left.parent.exists()
            assert (kept / "README").is_file()
            assert tree.top.is_dir()
        assert (kept / "README").is_file()
        living.stdin.close()
        assert living.wait() == 0
    assert list(scratch.iterdir()) == [mine]
    assert inside(own) == before


def test_no_link_is_followed_to_clear_away(own, scratch, tmp_path):
    theirs = tmp_path / "theirs"
    write(theirs, {"file": "x"})
    (scratch / "bt-bench-gate-0.lock").touch()
    (scratch / "bt-bench-gate-0.d").symlink_to(theirs)
    (scratch / "bt-bench-gate-1.lock").symlink_to(theirs / "file")
    os.mkfifo(scratch / "bt-bench-gate-2.lock")
    with base_tree(locate(own, [own / "mine"]), "main"):
        pass
    assert (theirs / "file").read_text() == "x"


def test_a_build_ends_with_a_gate_that_is_killed(own, tmp_path):
    """With all that the shell has started, in the background too."""
    left = tmp_path / "pid"
    process, _ = owner(own, f"sleep 600 & echo $! > {left}.new; mv {left}.new {left}; sleep 600")
    with process:
        wait_for(left.exists)
        process.kill()
    wait_for(lambda: not runs(int(left.read_text())))


@pytest.mark.parametrize("code", [3, -signal.SIGTERM, -signal.SIGKILL])
def test_a_build_that_a_signal_ends_has_failed(own, code):
    tree = working_tree(locate(own, [own / "mine"]))
    command = f"exit {code}" if code > 0 else f"kill -{-code} $$"
    with pytest.raises(UsageError, match=f"ended with exit code {code};"):
        build(tree, command)


def test_folders_that_a_build_made_read_only_are_removed(own, scratch):
    with base_tree(locate(own, [own / "mine"]), "main") as tree:
        build(tree, "mkdir -p a/b; touch a/b/c; chmod -R a-w a")
    assert list(scratch.iterdir()) == []


def test_within_a_hook_git_looks_at_the_right_repository(own, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    with base_tree(locate(own, [own / "mine"]), "main") as tree:
        assert (tree.top / "README").exists()


@pytest.mark.parametrize("link", [False, True])
def test_no_program_of_the_tree_stands_for_git_or_is_run_by_it(own, tmp_path, monkeypatch, link):
    """Such as of `bin` of an environment at its top, or through a link to it."""
    ran = tmp_path / "ran"
    for name in ("git", "smudge"):
        write(own, {f"bin/{name}": f'#!/bin/sh\necho {name} >> {ran}\nexec /usr/bin/{name} "$@"\n'})
        (own / "bin" / name).chmod(0o755)
    write(own, {".gitattributes": "README filter=odd\n"})
    commit(own, "programs")
    git(own, "config", "filter.odd.smudge", "smudge || cat")
    folder = own / "bin"
    if link:
        folder = tmp_path / "link"
        folder.symlink_to(own / "bin")
    monkeypatch.setenv("PATH", f"{folder}:bin:{os.environ['PATH']}")
    monkeypatch.chdir(own)
    location = locate(own, [own / "mine"])
    monkeypatch.chdir(tmp_path)  # the tree's programs count as its own from elsewhere too
    with base_tree(location, "main") as tree:
        assert (tree.top / "mine/quick.py").is_file()
    assert working_tree(location).commit
    assert not ran.exists()
    monkeypatch.setenv("PATH", f"{folder}:bin")
    with pytest.raises(UsageError, match="expected it on PATH, outside the repository"):
        locate(own, [own / "mine"])


@pytest.mark.parametrize("ref", ["nowhere", "--help", "main:README"])
def test_an_unknown_revision(own, scratch, ref):
    with (
        pytest.raises(UsageError, match=f"--base {ref}: git: fatal: .*expected a branch"),
        base_tree(locate(own, [own / "mine"]), ref),
    ):
        pass
    assert list(scratch.iterdir()) == []


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


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        *((ref, "--base is empty, as from a variable that this kind of job") for ref in ("", " ")),
        *(("0" * size, "CI systems give zeros where there was none before") for size in (40, 64)),
        (
            "1" * 40,
            f"this clone lacks that commit: after a force push .*git fetch origin {'1' * 40}",
        ),
    ],
    ids=["empty", "blank", "zeros", "zeros of SHA-256", "lost"],
)
def test_bases_that_ci_systems_give(own, scratch, ref, said):
    with pytest.raises(UsageError, match=said), base_tree(locate(own, [own / "mine"]), ref):
        pass
    assert list(scratch.iterdir()) == []


def test_the_branch_of_a_remote_is_named(own):
    for remote in ("origin", "upstream"):
        git(own, "update-ref", f"refs/remotes/{remote}/new/fast", "HEAD")
    with (
        pytest.raises(UsageError, match=r"did you mean origin/new/fast or upstream/new/fast\?"),
        base_tree(locate(own, [own / "mine"]), "new/fast"),
    ):
        pass
    with base_tree(locate(own, [own / "mine"]), "origin/new/fast") as tree:
        assert (tree.top / "README").read_text() == "x\n"


def test_a_commit_that_a_force_push_left_behind_is_fetched_by_itself(own, tmp_path):
    lost = commit(own, "second")
    git(own, "commit", "-q", "--amend", "--allow-empty", "-m", "rewritten")
    git(own, "config", "uploadpack.allowAnySHA1InWant", "true")
    for depth in ((), ("--depth", "1")):
        clone = tmp_path / f"clone{len(depth)}"
        git(tmp_path, "clone", "-q", *depth, f"file://{own}", str(clone))
        location = locate(clone, [clone / "mine"])
        with pytest.raises(UsageError) as caught, base_tree(location, lost):
            pass
        assert f"git fetch origin {lost}" in str(caught.value)
        git(clone, "fetch", "-q", "origin", lost)
        with base_tree(location, lost) as tree:
            assert tree.commit == lost


@pytest.mark.parametrize("what", ["blob:none", "tree:0"])
def test_a_partial_clone_fetches_the_base_or_says_what_git_says(own, tmp_path, what):
    write(own, {"README": "second\n"})
    git(own, "config", "uploadpack.allowFilter", "true")
    commit(own, "second")
    for name in ("whole", "lost"):
        git(tmp_path, "clone", "-q", "--filter", what, f"file://{own}", str(tmp_path / name))
    with base_tree(locate(tmp_path / "whole", [tmp_path / "whole/mine"]), "HEAD^") as tree:
        assert (tree.top / "README").read_text() == "x\n"
    git(tmp_path / "lost", "config", "remote.origin.url", f"file://{tmp_path}/gone")
    with (
        pytest.raises(UsageError) as caught,
        base_tree(locate(tmp_path / "lost", [tmp_path / "lost/mine"]), "HEAD^"),
    ):
        pass
    first, *_, last = str(caught.value).splitlines()
    assert first.startswith("--base HEAD^: cannot be checked out: git: fatal: ")
    assert "from promisor remote" in last


def test_a_repository_of_sha256(tmp_path):
    top = tmp_path / "own"
    write(top, OWN)
    git(top, "init", "-q", "-b", "main", "--object-format=sha256")
    commit(top, "first")
    with base_tree(locate(top, [top / "mine"]), "main") as tree:
        assert len(tree.commit) == 64
        assert (tree.top / "README").read_text() == "x\n"


def test_a_repository_without_files_of_references(tmp_path):
    """Git's reftable, the default from Git 3.0 on, where `.git/HEAD` names no commit."""
    own = tmp_path / "own"
    own.mkdir()
    try:
        git(own, "init", "-q", "-b", "main", "--ref-format=reftable")
    except subprocess.CalledProcessError:
        pytest.skip("this git is older than 2.45, and has no reftable")
    write(own, OWN)
    commit(own, "first")
    write(own, {"README": "changed\n"})
    with copy_of(own) as top:
        for tree, changes in ((top, " M README"), (top.with_name("base"), "")):
            assert git(tree, "rev-parse", "HEAD") == git(own, "rev-parse", "HEAD")
            assert git(tree, "status", "--porcelain").strip() == changes.strip()


def test_a_checkout_has_tables_of_its_own_where_the_repository_has_some(own):
    """As above, for a git that has no reftable, and passes over them."""
    (own / ".git/reftable").mkdir()
    with base_tree(locate(own, [own / "mine"]), "main") as tree:
        assert (tree.top.parent / "git-base/reftable").is_dir()
        assert (tree.top / "mine/quick.py").read_text() == VARIANT


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


def test_a_build_that_does_not_end_shows_the_end_of_its_output_too(own, monkeypatch):
    def late(process, timeout):
        raise subprocess.TimeoutExpired(process.args, timeout, output=b"".join(lines))

    lines = [b"%d\n" % number for number in range(100)] + [b"bad \xff\n"]
    tree = working_tree(locate(own, [own / "mine"]))
    monkeypatch.setattr("subprocess.Popen.communicate", late)
    with pytest.raises(UsageError) as caught:
        build(tree, "sleep 600", seconds=0.5)
    first, *rest = str(caught.value).splitlines()
    assert "--build 'sleep 600' has not ended after 0.5 s" in first
    assert (len(rest), rest[-1]) == (20, "  bad \ufffd")


def test_an_interrupted_build_ends_what_the_shell_has_started(own, monkeypatch, tmp_path):
    tree = working_tree(locate(own, [own / "mine"]))
    left = tmp_path / "pid"

    def interrupted(_process, timeout=None):
        wait_for(lambda: left.exists() and left.read_text().strip())
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen.communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(tree, f"sleep 600 & echo $! > '{left}'; wait")
    wait_for(lambda: not runs(int(left.read_text())))
