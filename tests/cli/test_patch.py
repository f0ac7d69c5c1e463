"""`bt-bench patch`, with a small made-up release in place of vLLM's."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from support.commands import run
from support.refusals import refused

from bt_bench.upstream import releases
from bt_bench.upstream.changes import Change, Edit, Patch, after, at_start

SOURCE = "def step():\n    return 1\n"
PATCHES = tuple(
    Patch(name, f"Add {name}", f"Adds {name}.\n", "Not yet.\n", "Here.\n", changes)
    for name, changes in {
        "note": (
            Change("vllm/engine.py", (Edit("step", at_start, "    note = 2\n"),), adds="note"),
            Change(
                "tests/test_engine.py",
                (Edit("test_step", after, "\n\ndef test_note(): ...\n"),),
                adds="test_note",
                is_test=True,
            ),
        ),
        "stop": (
            Change("vllm/other.py", (Edit("step", after, "\n\ndef stop(): ...\n"),), adds="stop"),
        ),
    }.items()
)


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setitem(releases.PATCHES, "9.1", PATCHES)
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "a copy"
    (root / "vllm").mkdir(parents=True)
    for name in ("engine.py", "other.py"):
        (root / "vllm" / name).write_text(SOURCE)
    (root / "vllm/_version.py").write_text("__version__ = '9.1+cu130'\n")
    return root


def patch(source, *more):
    return ("patch", "--for", "vllm==9.1", "--source", source, *more)


def test_commands_that_it_prints_apply_the_patches(source, tmp_path):
    outcome = run(*patch(source))
    assert outcome.code == 0, outcome
    head, *middle, _, first, second = outcome.out.splitlines()
    assert head == f"vLLM 9.1 in {source}: 2 patches"
    assert "  vllm-9.1-patches/0001-note.patch" in middle
    assert "    lines: 1 added, 0 to tests, 0 removed" in middle
    assert "  left out: tests/test_engine.py, which this copy does not have" in middle
    for line in (first.removeprefix("Next:"), second):
        subprocess.run(shlex.split(line), check=True)
    assert (source / "vllm/engine.py").read_text() == "def step():\n    note = 2\n    return 1\n"
    assert (source / "vllm/other.py").read_text() == SOURCE + "\n\ndef stop(): ...\n"
    text = (tmp_path / "vllm-9.1-patches/0001-note.patch").read_text()
    for part in ("Subject: Add note\n\nAdds note.\n", "Not yet.", "Machine-made", "vllm==9.1\n"):
        assert part in text
    assert "is patched; pass an unpatched copy of vLLM 9.1" in refused(*patch(source, "--out", "b"))
    assert not (tmp_path / "b").exists()


def test_in_a_folder_of_a_work_tree_git_finds_the_files(source, tmp_path):
    """Without `--directory`, git would skip all files without a word."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("*\n")
    for each in run(*patch(source, "--json")).json()["patches"]:
        subprocess.run(shlex.split(each["apply"]), check=True)
    assert "note = 2" in (source / "vllm/engine.py").read_text()


def test_json_has_sizes_and_files(source):
    (source / "tests").mkdir()
    (source / "tests/test_engine.py").write_text("def test_step(): ...\n")
    outcome = run(*patch(source, "--out", "out", "--json"))
    document = outcome.json()
    assert document["schema_version"] == 1
    assert (document["release"], document["source"]) == ("9.1", str(source))
    note, stop = document["patches"]
    assert note["path"] == "out/0001-note.patch"
    assert (note["added"], note["added_to_tests"], note["removed"]) == (4, 3, 0)
    assert [each["path"] for each in note["files"]] == ["vllm/engine.py", "tests/test_engine.py"]
    assert stop["left_out"] == []


def test_bad_input(source, tmp_path):
    out = tmp_path / "vllm-9.1-patches"
    assert "expected vllm==0.33.0, vllm==9.1" in refused("patch", "--for", "vllm==9.2")
    assert "--for vllm: there are no patches" in refused("patch", "--for", "vllm")
    assert "Missing option" in run("patch").err
    assert "vLLM is not installed; pass a copy by --source" in refused(
        "patch", "--for", "vllm==9.1"
    )
    assert "--source nowhere does not exist; expected" in refused(*patch("nowhere"))
    assert "is a file" in refused(*patch(source / "vllm/engine.py"))
    assert "has no folder vllm" in refused(*patch(source / "vllm"))
    (source / "vllm/_version.py").write_text("__version__ = '9.0'\n")
    assert f"{source} is vLLM 9.0; expected 9.1, which --for names" in refused(*patch(source))
    (source / "vllm/_version.py").unlink()  # as in a checkout: the files decide
    (source / "vllm/other.py").write_text("def step2(): ...\n")
    assert "vllm/other.py has no step; expected the file of vLLM 9.1" in refused(*patch(source))
    assert not out.exists()
    (source / "vllm/other.py").write_text(SOURCE)
    out.mkdir()
    assert "vllm-9.1-patches exists already; pass a new folder" in refused(*patch(source))
    assert "cannot make the folder" in refused(*patch(source, "--out", source / "vllm/other.py/x"))
