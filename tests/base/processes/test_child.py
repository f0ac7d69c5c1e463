"""A process of bt-bench's own, from its start to its end."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from bt_bench.base import expanded, scratch_folder
from bt_bench.base.processes import Child, answer, child, lifetime

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


TEMPORARY = """\
import os, sys, tempfile, time
from pathlib import Path
from bt_bench.base.processes import Child, answer, settle

def leave_files(connection):
    settle()
    names = [tempfile.mkstemp(suffix=".ptx")[1], os.path.join(os.environ["TMPDIR"], "cc0.s")]
    Path(names[1]).touch()
    answer(connection, names)
    answer(connection, os.environ["TORCHINDUCTOR_CACHE_DIR"])
    time.sleep(600)

if __name__ == "__main__":
    import left
    child = Child("probe", left.leave_files)
    print(*child.next_message(60), flush=True)
    print(child.next_message(60), flush=True)
    if sys.argv[1] == "ends":
        child.kill()
    else:
        os._exit(9)
"""


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_temporary_files_of_a_process_go_with_it_or_with_the_next_one(tmp_path, monkeypatch, how):
    """Such as those that a killed compiler leaves."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    script = tmp_path / "left.py"
    script.write_text(TEMPORARY)
    done = subprocess.run(
        [sys.executable, script, how], capture_output=True, text=True, check=False
    )
    files, inductor = done.stdout.splitlines()
    for file in map(Path, files.split()):
        assert file.is_relative_to(temporary)
        assert file.parent != temporary
        assert file.exists() is (how == "is killed")
    assert Path(inductor).parent == temporary  # it is kept
    monkeypatch.setattr("tempfile.tempdir", None)
    with scratch_folder("next"):
        pass
    assert list(temporary.iterdir()) == []


def test_a_user_without_a_home_directory_is_given_one(tmp_path, monkeypatch):
    """Else Triton, for one, makes a folder named ~ in the working directory."""
    monkeypatch.setenv("HOME", "/mine")
    child._give_a_home("/else")
    assert os.environ["HOME"] == "/mine"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)  # nobody's
    assert expanded("~/x") == Path("~/x")
    child._give_a_home(str(tmp_path))
    assert expanded("~/x") == tmp_path / "x"


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


class Starting:
    """In place of a process: keeps the marks that it is started with, and takes a while for it."""

    def __init__(self, **_):
        self.marks = []

    def start(self):
        for _ in range(3):
            self.marks.append([name for name in os.environ if name.startswith(lifetime._MARK)])
            time.sleep(0.005)


def test_threads_that_start_processes_at_once_mark_their_own_alone(monkeypatch):
    """Else the end of one would end the others, whose marks it looks for."""
    context = SimpleNamespace(Pipe=multiprocessing.Pipe, Process=Starting)
    monkeypatch.setattr(child, "CONTEXT", context)
    with ThreadPoolExecutor(6) as threads:
        children = list(threads.map(lambda _: Child("probe", print), range(6)))
    for each in children:
        assert each._process.marks == [[each._mark]] * 3
