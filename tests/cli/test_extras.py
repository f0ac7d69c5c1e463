"""Commands of an installation that lacks packages, or POSIX."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.commands import run, run_apart

from bt_bench.base import extras
from bt_bench.base.extras import RUN_PACKAGES, missing_packages

RUN = str(Path(__file__).parents[2] / "reports" / "h100" / "origin")
ADDS = "pip install 'bt-bench[run]' adds all that measurements need"

# What `pip install bt-bench` brings nothing of, and what Windows lacks.
BLOCK = """\
import os, signal, sys
class Blocking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocking())
"""
LIGHT = BLOCK.format(names={*RUN_PACKAGES, "pynvml", "pandas"})
WINDOWS = (
    BLOCK.format(
        names={
            *RUN_PACKAGES,
            "pynvml",
            "pandas",
            "fcntl",
            "termios",
            "resource",
            "pwd",
            "grp",
            "pty",
        }
    )
    + """\
del signal.SIGHUP
for name in ("geteuid", "getuid", "fork", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC"):
    delattr(os, name)
"""
)


@pytest.mark.parametrize(
    "words",
    [
        ("sweep", "quick"),
        ("sweep", "no-such-config"),
        ("check",),
        ("calibrate",),
        ("overhead",),
        ("gate", "--config", "quick", "--base", "HEAD"),
        ("gate", "--config", "quick", "--against", RUN),
        ("profile", "quick", "--tool", "static"),
    ],
    ids=" ".join,
)
def test_what_measures_names_the_extra_before_anything_else(words, monkeypatch):
    monkeypatch.setattr(extras, "_is_installed", lambda module: module not in ("torch", "triton"))
    ended = run(*words)
    assert ended.code == 2
    assert ended.out == ""
    said = f"{words[0]} needs torch and Triton, which are not installed; {ADDS}"
    assert ended.err == f"bt-bench: error: {said}\n"


@pytest.mark.parametrize("module", RUN_PACKAGES)
def test_each_package_is_missed_wherever_it_is_blocked(module, monkeypatch):
    assert missing_packages() == []

    class Blocking:
        def find_spec(self, name, path=None, target=None):
            if name == module:
                raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(sys, "meta_path", [Blocking(), *sys.meta_path])
    assert missing_packages() == [RUN_PACKAGES[module]]


def test_what_only_this_process_must_not_load_is_not_missed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert missing_packages() == []


def test_help_and_mistakes_in_options_come_first(monkeypatch):
    monkeypatch.setattr(extras, "_is_installed", lambda _: False)
    assert run("sweep", "--help").code == 0
    assert "No such option" in run("sweep", "--no-such-option").err


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("prologue", [LIGHT, WINDOWS], ids=["light", "windows"])
@pytest.mark.parametrize(
    "words",
    [
        ("show", RUN),
        ("compare", RUN),
        ("schema",),
        ("list", "metrics"),
        ("selfcheck", "--gates", "1"),
    ],
    ids=" ".join,
)
def test_what_reads_needs_none_of_them(words, prologue):
    ended = run_apart(*words, prologue=prologue)
    assert (ended.code in (0, 5), "error" in ended.err) == (True, False), ended.err
    assert ended.out


@pytest.mark.parametrize("words", [("list",), ("workload", "quick")], ids=" ".join)
def test_workloads_of_the_kernels_need_the_kernels(words):
    ended = run_apart(*words, prologue=LIGHT)
    said = f"bt-bench: error: {words[0]} needs bt-kernels, which is not installed; {ADDS}\n"
    assert (ended.code, ended.out, ended.err) == (2, "", said)


def test_the_environment_is_shown_so_far_as_it_is_known():
    ended = run_apart("env", "--json", prologue=LIGHT)
    assert ended.code == 0
    assert ended.json()["torch"] is None
    assert ended.json()["helpers"] is None
    assert ended.json()["python"] == sys.version.split()[0]
    assert ended.err.startswith("bt-bench: note: a measurement needs torch, Triton, bt-kernels and")
    asked = run_apart("env", "--device", "cuda", prologue=LIGHT)
    assert asked.code == 2
    assert "--device needs torch, Triton, bt-kernels and nvtx" in asked.err
