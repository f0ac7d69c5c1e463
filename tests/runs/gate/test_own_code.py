"""A gate does not judge a tree whose code runs in the process that judges."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import typing_extensions
from support.commands import run_apart
from support.repositories import repository

from bt_bench.base.errors import UsageError
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


def test_a_tree_on_the_path_without_code_that_runs_is_not(tmp_path):
    top = repository(tmp_path / "repo", FILES)
    assert "runs in the process that judges it" not in gate(top, "--static").err


FILES = {"my.yaml": CONFIG, "mine/one.py": "", "lib/other.py": ""}
ENDS_WELL = "import atexit, os; atexit.register(os._exit, 0)\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sitecustomize.py", ENDS_WELL),
        ("bt_bench_variants_0123456789ab.py", ""),
        ("sitecustomize.py", f"import bt_bench_x\n{ENDS_WELL}"),
    ],
)
def test_a_tree_on_the_path_of_the_tool_is_refused(tmp_path, name, text):
    """With PYTHONPATH, Python runs its files before bt-bench begins."""
    top = repository(tmp_path / "repo", FILES)
    (top / "lib" / name).write_text(text)
    (top / "lib/bt_bench_x.py").write_text("")
    if "variants" in name:
        (top / "lib/sitecustomize.py").write_text(
            f"import sys, {name[:-3]}\ndel sys.modules['sitecustomize'], sys\n{ENDS_WELL}"
        )
    outcome = gate(top, "--static")
    assert outcome.code == 2
    assert ", which is of the tree to be judged, runs in" in outcome.err


PLUGIN = {
    "lib/odd.egg-info/PKG-INFO": "Metadata-Version: 2.1\nName: odd\nVersion: 1\n",
    "lib/odd.egg-info/entry_points.txt": "[pydantic]\nodd = plug:plugin\n",
}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "name",
    # What is imported in place of something that is installed, if it is there, and as a plugin.
    ["typing_extensions.py", "_ruamel_yaml.py", "orjson/__init__.py", "plug.py"],
)
def test_no_module_of_a_tree_is_loaded_where_it_is_judged(tmp_path, name):
    """As it would be with PYTHONPATH, or after an editable install of the tree's project."""
    ran = tmp_path / "ran"
    text = Path(typing_extensions.__file__).read_text() if name[0] == "t" else ""
    text += f"\nimport sys\nif 'gate' in sys.argv: open({str(ran)!r}, 'w')\n{ENDS_WELL}"
    top = repository(tmp_path / "repo", FILES | PLUGIN | {f"lib/{name}": text})
    for folder in (top, tmp_path):
        outcome = gate(top, "--device", "cpu", f"--kernels={top}/mine", cwd=folder)
        assert not ran.exists()
        assert "runs in the process that judges it" not in outcome.err
        assert outcome.code == 4, outcome.err
        assert "so nothing could differ" in outcome.err


def test_an_environment_within_the_tree_is_no_reason_not_to_look(tmp_path, monkeypatch):
    """As `.venv` at its top, with bt-bench installed in it."""
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / ".venv"))
    monkeypatch.setattr("bt_bench.__file__", str(tmp_path / ".venv/bt_bench/__init__.py"))
    refuse_code_of(tmp_path)
    module_of(monkeypatch, str(tmp_path / "odd.py"))
    with pytest.raises(UsageError, match=r"odd\.py, which is of the tree to be judged"):
        refuse_code_of(tmp_path)


def gate(top, *options, cwd=None):
    kernels = () if any("--kernels" in option for option in options) else ("--kernels", "mine")
    return run_apart(
        *("gate", "--config", top / "my.yaml", "--base", "HEAD", *kernels, "--dry-run"),
        *options,
        cwd=cwd or top,
        environment={"PYTHONPATH": str(top / "lib")},
    )
