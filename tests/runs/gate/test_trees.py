"""Checkouts of the base: made, found, gone again; and the user's repository left alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.processes import runs, wait_for
from support.repositories import commit, git, repository, write

from bt_bench.base.errors import UsageError
from bt_bench.runs.gate.trees import base_tree, build, isolations, locate, working_tree

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
    head = working_tree(location)
    assert head.dirty
    assert head.variants()["quick"].path == own / "mine/quick.py"


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
    assert not ran.exists()


def test_looking_at_the_working_tree_writes_no_index(own):
    os.utime(own / "README", (1e9, 1e9))  # git would note that in its index
    before = inside(own)
    assert not working_tree(locate(own, [own / "mine"])).dirty
    assert inside(own) == before


OWNER = """\
import sys, time
from pathlib import Path
from bt_bench.runs.gate.trees import base_tree, build, locate
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
        UsageError, match="found no git repository to take a base revision from: git"
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


@pytest.mark.parametrize("knows", [True, False], ids=["git knows", "older git"])
def test_tracked_files_are_no_repository(own, tmp_path, monkeypatch, knows):
    """A folder whose files make it look like a bare repository answers nothing about a gate."""
    forged = repository(tmp_path / "forged", OWN)
    commit(forged, "the same as before, says the attacker")
    git(forged, "gc", "-q")
    project = own / "project"
    project.mkdir()
    for name in ("objects", "refs"):
        shutil.copytree(forged / ".git" / name, project / name)
        (project / name / "keep").touch()
    for name in ("HEAD", "packed-refs"):
        shutil.copy(forged / ".git" / name, project)
    settings = "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\n"
    write(project, {"config": settings, "mine/quick.py": VARIANT})
    commit(own, "a repository in files")
    assert git(project, "rev-parse", "--show-toplevel") == str(project)  # it would be believed
    if not knows:
        monkeypatch.setattr("bt_bench.base.git._NOTHING_ELSE", ())
    said = "cannot use bare repository" if knows else "project: git takes it for the top"
    with pytest.raises(UsageError, match=said):
        locate(project)
    with pytest.raises(UsageError, match=said):
        locate(project, [project / "mine"])


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


def test_what_git_advises_is_passed_on_whole(own, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # as in git's own tests
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    with pytest.raises(UsageError) as caught:
        locate(own, [own / "mine"])
    message = str(caught.value)
    assert "found no git repository" not in message
    assert message.startswith(f"{own / 'mine'}: its repository is not one to take a base revision")
    assert message.splitlines()[1:] == [
        "  To add an exception for this directory, call:",
        f"    git config --global --add safe.directory {own}",
    ]


def test_a_repository_without_a_commit_is_named(tmp_path):
    top = tmp_path / "empty"
    write(top, OWN)
    git(top, "init", "-q", "-b", "main")
    with pytest.raises(UsageError, match=f"{top}: HEAD is no commit: git: fatal: "):
        working_tree(locate(top, [top / "mine"]))


def test_a_repository_that_git_cannot_read_is_not_taken_for_one_without_kernels(own):
    (own / ".git/index").write_bytes(b"damaged")
    with pytest.raises(UsageError, match=r"git: .*index"):
        locate(own)


def test_a_repository_of_sha256(tmp_path):
    top = tmp_path / "own"
    write(top, OWN)
    git(top, "init", "-q", "-b", "main", "--object-format=sha256")
    commit(top, "first")
    with base_tree(locate(top, [top / "mine"]), "main") as tree:
        assert len(tree.commit) == 64
        assert (tree.top / "README").read_text() == "x\n"


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


VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"lib/{VERSION}/site-packages"


@pytest.fixture
def sides(own, monkeypatch):
    """What base and head may use, after an environment was made at a place in the checkout."""

    @contextmanager
    def made(prefix, tracked):
        write(own, dict.fromkeys(tracked, "1\n"))
        commit(own, "sources")
        home = own / prefix
        write(home, {"bin/python": "", f"{PACKAGES}/torch/x.py": "", "pyvenv.cfg": ""})
        (home / "lib64").symlink_to("lib")
        for name in ("prefix", "exec_prefix"):
            monkeypatch.setattr(sys, name, str(home))
        location = locate(own, [own / "mine"])
        with base_tree(location, "HEAD") as base:
            yield base.top, own, *isolations(base, working_tree(location))

    return made


SOURCES = ["lib/extras.py", "bin/tool", "share/x", "etc/x", f"{PACKAGES}/mine.py", "include/x.h"]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("prefix", ["", "env/"])
def test_what_git_tracks_is_each_revisions_own_beside_an_environment_too(sides, name, prefix):
    name = f"{prefix}{name}"
    with sides(prefix, [name]) as (base, head, of_base, of_head):
        assert of_base.mapped(str(head / name)) == base / name
        assert of_base.owner_of(str(head / name)) == "working tree"
        assert of_head.is_own(str(head / name))
        assert of_head.owner_of(str(base / name)) is not None
        assert of_base.led(str((head / name).parent))[0] == str((base / name).parent)
        assert of_base.mapped(str(head / prefix / "lib/new.py")) == base / prefix / "lib/new.py"


@pytest.mark.parametrize("prefix", ["", "env/", ".venv/"])
def test_what_is_installed_is_of_no_revision(sides, prefix):
    with sides(prefix, [] if prefix == ".venv/" else [f"{prefix}lib/x.py"]) as (_, head, *both):
        for isolation in both:
            for name in ("bin/python", f"{PACKAGES}/torch/x.py"):
                assert isolation.owner_of(str(head / prefix / name)) is None
                assert not isolation.is_own(str(head / prefix / name))
            folder = str(head / prefix / PACKAGES)
            assert isolation.led(folder) == [folder]


def test_programs_of_an_environment_and_of_the_repository_in_one_folder(sides):
    """The base's own first, and then what is installed, which both have."""
    with sides("", ["bin/tool"]) as (base, head, of_base, of_head):
        path = f"{head}/bin:/usr/bin"
        assert of_base.environment({"PATH": path})["PATH"] == f"{base}/bin:{path}"
        assert of_head.environment({"PATH": path})["PATH"] == path


def test_sources_in_the_folder_for_temporary_files(own, tmp_path, monkeypatch):
    write(own, {"tmp/extras.py": "1\n"})
    commit(own, "sources")
    monkeypatch.setattr("tempfile.tempdir", str(own / "tmp"))
    location = locate(own, [own / "mine"])
    with base_tree(location, "HEAD") as base:
        of_base, of_head = isolations(base, working_tree(location))
        assert of_base.mapped(str(own / "tmp/extras.py")) == base.top / "tmp/extras.py"
        assert of_head.is_own(str(own / "tmp/extras.py"))
        assert of_base.led(str(own / "tmp")) == [str(base.top / "tmp"), str(own / "tmp")]
        assert of_base.owner_of(str(own / "tmp/scratch")) is None


def test_paths_that_lead_nowhere_are_as_they_were(sides):
    """Whatever the environment holds: no worker may end for it."""
    with sides(".venv/", ["lib/extras.py"]) as (base, head, of_base, _):
        (head / "loop").symlink_to("loop")
        (head / "dangling").symlink_to("nowhere")
        for entry in (f"{head}/loop/x", f"{head}/dangling", f"{head}/{'n' * 300}", "lib", ""):
            assert of_base.led(entry) == [entry]
        assert of_base.led(f"{head}/lib") == [f"{base}/lib"]
