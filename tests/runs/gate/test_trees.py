"""Where the kernels of a repository are, and the files that each revision may use."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.repositories import commit, git, repository, write

from bt_bench.base.errors import UsageError
from bt_bench.runs.gate.checkouts import base_tree, copied
from bt_bench.runs.gate.trees import isolations, locate, working_tree

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


def test_looking_at_the_working_tree_writes_no_index(own):
    os.utime(own / "README", (1e9, 1e9))  # git would note that in its index
    before = inside(own)
    assert not working_tree(locate(own, [own / "mine"])).dirty
    assert inside(own) == before


def test_changes_are_those_at_the_start_and_are_known_by_their_contents(own, tmp_path):
    """Shards measure a copy from the start, and their checkouts may be copies of one another."""
    location = locate(own, [own / "mine"])
    write(own, {"mine/quick.py": f"{VARIANT}x = 1\n"})
    tree = working_tree(location)
    assert tree.dirty
    assert tree.changes is not None
    os.utime(own / "README", (1e9, 1e9))
    assert working_tree(location).changes == tree.changes
    with base_tree(location, "HEAD") as old:
        new = copied(tree, old)
        write(own, {"mine/quick.py": f"{VARIANT}x = 2\n"})
        assert new.changes == tree.changes != working_tree(location).changes
    git(own, "mv", "README", "READ")
    assert working_tree(location).changes != tree.changes
    git(own, "reset", "-q", "--hard")
    assert not working_tree(location).dirty


def test_changes_are_also_in_code_of_variants_that_git_does_not_track(own, monkeypatch):
    """A variant may import it; but what a gate leaves there, and what git ignores, is no change.

    Nor is an environment.
    """
    write(own, {".gitignore": "ignored.py\n"})
    commit(own, "ignore")
    location = locate(own, [own / "mine"])
    passed = ["mine/ignored.py", "mine/gate/recording.json", "mine/__pycache__/a.py", "beside.py"]
    write(own, dict.fromkeys([*passed, f"mine/env/{PACKAGES}/torch.py"], "x = 1\n"))
    for name in ("prefix", "exec_prefix"):
        monkeypatch.setattr(sys, name, str(own / "mine/env"))
    assert working_tree(location).changes is None
    write(own, {"mine/deep/helper.py": "x = 1\n"})
    tree = working_tree(location)
    assert tree.changes is not None
    assert not tree.dirty
    (own / "link").symlink_to("mine")
    linked = working_tree(locate(own, [own / "link"]))
    assert linked.changes == tree.changes
    write(own, {"mine/deep/helper.py": "x = 2\n"})
    assert working_tree(location).changes not in (None, tree.changes)


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
            head = copied(working_tree(location), base)
            yield base.top, head.top, *isolations(base, head)

    return made


SOURCES = ["lib/extras.py", "bin/tool", "share/x", "etc/x", f"{PACKAGES}/mine.py", "include/x.h"]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("prefix", ["", "env/"])
def test_what_git_tracks_is_each_revisions_own_beside_an_environment_too(own, sides, name, prefix):
    name = f"{prefix}{name}"
    with sides(prefix, [name]) as (base, head, *both):
        for top, other, isolation in zip((base, head), (head, base), both, strict=True):
            assert isolation.is_own(str(top / name))
            for elsewhere in (other, own):
                assert isolation.mapped(str(elsewhere / name)) == top / name
                assert isolation.owner_of(str(elsewhere / name)) is not None
            assert isolation.led(str((own / name).parent))[0] == str((top / name).parent)
            assert isolation.mapped(str(own / prefix / "lib/new.py")) == top / prefix / "lib/new.py"
        assert both[0].owner_of(str(own / name)) == "the checkout"


@pytest.mark.parametrize("prefix", ["", "env/", ".venv/"])
def test_what_is_installed_is_of_no_revision(own, sides, prefix):
    with sides(prefix, [] if prefix == ".venv/" else [f"{prefix}lib/x.py"]) as (_, _, *both):
        for isolation in both:
            for name in ("bin/python", f"{PACKAGES}/torch/x.py"):
                assert isolation.owner_of(str(own / prefix / name)) is None
                assert not isolation.is_own(str(own / prefix / name))
            folder = str(own / prefix / PACKAGES)
            assert isolation.led(folder) == [folder]


def test_programs_of_an_environment_and_of_the_repository_in_one_folder(own, sides):
    """The revision's own first, and then what is installed, which both have."""
    with sides("", ["bin/tool"]) as (base, head, *both):
        path = f"{own}/bin:/usr/bin"
        for top, isolation in zip((base, head), both, strict=True):
            assert isolation.environment({"PATH": path})["PATH"] == f"{top}/bin:{path}"


def test_sources_in_the_folder_for_temporary_files(own, tmp_path, monkeypatch):
    write(own, {"tmp/extras.py": "1\n"})
    commit(own, "sources")
    monkeypatch.setattr("tempfile.tempdir", str(own / "tmp"))
    location = locate(own, [own / "mine"])
    with base_tree(location, "HEAD") as base:
        head = copied(working_tree(location), base)
        for tree, isolation in zip((base, head), isolations(base, head), strict=True):
            assert isolation.mapped(str(own / "tmp/extras.py")) == tree.top / "tmp/extras.py"
            assert isolation.is_own(str(tree.top / "tmp/extras.py"))
            assert isolation.led(str(own / "tmp")) == [str(tree.top / "tmp"), str(own / "tmp")]
            assert isolation.owner_of(str(own / "tmp/scratch")) is None


def test_paths_that_lead_nowhere_are_as_they_were(own, sides):
    """Whatever the environment holds: no worker may end for it."""
    with sides(".venv/", ["lib/extras.py"]) as (base, _, of_base, _):
        (own / "loop").symlink_to("loop")
        (own / "dangling").symlink_to("nowhere")
        for entry in (f"{own}/loop/x", f"{own}/dangling", f"{own}/{'n' * 300}", "lib", ""):
            assert of_base.led(entry) == [entry]
        assert of_base.led(f"{own}/lib") == [f"{base}/lib"]
