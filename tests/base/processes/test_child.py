"""A process of bt-bench's own, from its start to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bt_bench.base.processes import Child, answer

SCRIPT = """\
from bt_bench.base.processes import Child, answer

print("begins")
child = Child("probe", answer, 7)
print(child.next_message(60))
child.kill()
"""


def test_a_script_needs_no_guard_and_runs_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["begins", "7"], "")


SHADOWING = ("types", "random", "signal", "struct", "tempfile")
"""Names of modules that processes import when they start, and of files that people write."""


@pytest.mark.parametrize("setting", [None, "1"])
def test_files_in_the_working_directory_are_not_taken_for_pythons(tmp_path, monkeypatch, setting):
    for name in SHADOWING:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name}.py was imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    if setting:
        monkeypatch.setenv("PYTHONSAFEPATH", setting)
    child = Child("probe", told)
    try:
        assert child.next_message(60) == (setting, False)
    finally:
        child.kill()
    assert os.environ.get("PYTHONSAFEPATH") == setting


def told(connection):
    here = {"", str(Path.cwd())} & set(sys.path)
    answer(connection, (os.environ.get("PYTHONSAFEPATH"), bool(here)))
