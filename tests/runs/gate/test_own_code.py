"""A gate does not judge a tree whose code runs in the process that judges."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import typing_extensions
from support.commands import run_apart
from support.repositories import repository

from bt_bench.errors import UsageError
from bt_bench.runs.gate.own_code import refuse_code_of

CONFIG = "cases: [{name: one, requests: 1, tokens: 4}]\n"


def module_of(monkeypatch, file):
    module = ModuleType("odd")
    module.__file__ = file
    monkeypatch.setitem(sys.modules, "odd", module)


def test_a_module_of_the_tree_is_named(tmp_path, monkeypatch):
    module_of(monkeypatch, str(tmp_path / "lib" / "odd.py"))
    with pytest.raises(UsageError, match=rf"{tmp_path}/lib/odd.py, which .* as module 'odd'; keep"):
        refuse_code_of(tmp_path)
    refuse_code_of(tmp_path / "other")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "lib")
    module_of(monkeypatch, str(link / "odd.py"))
    with pytest.raises(UsageError, match=r"lib/odd\.py"):
        refuse_code_of(tmp_path / "lib")


@pytest.mark.parametrize("file", [None, 3, "", "_ops.py"])
def test_modules_without_a_file_are_of_no_tree(tmp_path, monkeypatch, file):
    monkeypatch.chdir(tmp_path)
    module_of(monkeypatch, file)
    refuse_code_of(tmp_path)


def test_what_is_installed_is_not_the_trees(tmp_path, monkeypatch):
    """A virtual environment may lie in the tree."""
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / "site-packages"))
    module_of(monkeypatch, str(tmp_path / "site-packages" / "odd.py"))
    refuse_code_of(tmp_path)


def test_bt_bench_judges_its_own_tree():
    refuse_code_of(Path(__file__).resolve().parents[3])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("sitecustomize.py", ["--static"]), ("typing_extensions.py", ["--device", "cpu"])],
)
def test_a_tree_on_the_path_of_the_tool_is_refused(tmp_path, name, kind):
    """With PYTHONPATH, Python runs its files before bt-bench begins, or in place of others."""
    files = {"my.yaml": CONFIG, "mine/one.py": "", "lib/other.py": ""}
    top = repository(tmp_path / "repo", files)
    assert "runs in the process that judges it" not in gate(top, *kind).err
    text = Path(typing_extensions.__file__).read_text() if name[0] == "t" else ""
    (top / "lib" / name).write_text(text)
    outcome = gate(top, *kind)
    assert outcome.code == 2
    assert f"{top}/lib/{name}, which is of the tree to be judged, runs in" in outcome.err


def gate(top, *options):
    return run_apart(
        *("gate", "--config", "my.yaml", "--base", "HEAD", "--kernels", "mine", "--dry-run"),
        *options,
        cwd=top,
        environment={"PYTHONPATH": str(top / "lib")},
    )
