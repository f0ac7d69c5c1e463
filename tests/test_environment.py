"""No test's result depends on the environment that tests are run in."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from support.environment import settled
from support.terminals import run_in_terminal

# Each of these has changed what some test sees, or could.
PLANTED = {
    "COLUMNS": "0",
    "LINES": "0",
    "TERMINAL_WIDTH": "33",
    "TERM": "dumb",
    "FORCE_COLOR": "1",
    "NO_COLOR": "1",
    "TTY_COMPATIBLE": "1",
    "TYPER_USE_RICH": "0",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "C",
    "TZ": "Asia/Kathmandu",
    "HOME": "/nonexistent",
    "XDG_CACHE_HOME": "/nonexistent",
    "CI": "true",
    "GITHUB_ACTIONS": "true",
    "GITHUB_STEP_SUMMARY": "/nonexistent/summary",
    "GIT_DIR": "/nonexistent",
    "GIT_CONFIG_COUNT": "garbage",
    "MAKEFLAGS": "n",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONIOENCODING": "latin-1",
    "PYTHONHASHSEED": "0",
    "PYTHONWARNINGS": "default",
    "OMP_NUM_THREADS": "7",
    "TRITON_INTERPRET": "0",
    "TRITON_DEBUG": "1",
    "CUDA_VISIBLE_DEVICES": "none",
    "NVTX_DISABLE": "1",
    "BT_BENCH_THRESHOLD": "50",
    "BT_BENCH_DEVICE": "cuda",
    "BT_KERNELS_NATIVE": "0",
    "_BT_BENCH_COMPLETE": "complete_bash",
    "A_NAME_THAT_NOBODY_READS_YET": "1",
}

# Tests that look at a width, at an encoding, or at what a command prints, here or in a process of
# its own; and those below, which see the environment itself.
SENSITIVE = (
    "tests/cli/test_commands.py::test_help_fits_80_columns_and_names_no_types",
    "tests/cli/test_encoding.py::test_no_encoding_ends_a_command[help-ascii]",
    "tests/docs/test_ci.py::test_lines_that_call_the_gate_have_options_and_formats_that_exist",
    "tests/docs/test_makefile.py",
    "tests/test_environment.py::test_this_process_sees_what_was_settled",
    "tests/test_environment.py::test_so_does_a_process_that_a_test_starts",
)

LOOK = """\
import locale, os, subprocess, sys, time
from rich.console import Console
seen = {
    "size": tuple(Console().size),
    "encodings": (sys.getfilesystemencoding(), locale.getpreferredencoding(False).lower()),
    "zone": time.localtime(0).tm_gmtoff,
    "hashes differ": sys.flags.hash_randomization,
    "author": subprocess.check_output(["git", "config", "--get-all", "user.name"], text=True),
    "environment": dict(os.environ),
}
"""


def is_settled(seen: dict[str, Any]) -> bool:
    environment = seen.pop("environment")
    wanted = settled(environment, environment["TEST_HOME"])
    # Commands that tests run in this process may have left something, but nothing of these names.
    assert not (environment.keys() & PLANTED.keys()) - wanted.keys()
    assert wanted.items() <= environment.items()
    return seen == {
        "size": (80, 25),
        "encodings": ("utf-8", "utf-8"),
        "zone": 0,
        "hashes differ": 1,
        "author": "test\n",
    }


def test_nothing_is_inherited_that_nobody_has_named():
    found = settled(PLANTED | {"PATH": "/bin", "PYTEST_ADDOPTS": "-x"}, "/home/of/tests")
    assert found.items().isdisjoint(PLANTED.items())
    fixed = ("LC_ALL", "TZ", "TRITON_INTERPRET")
    assert [found[name] for name in fixed] == ["C.UTF-8", "UTC", "1"]
    assert found["PATH"] == "/bin"
    assert found["PYTEST_ADDOPTS"] == "-x"
    assert settled(found, "/home/of/tests") == found  # as in a process of xdist


def test_no_conftest_loads_triton():
    """Pytest imports those beside its arguments before it is told to have kernels interpreted."""
    tests = Path(__file__).parent
    code = (
        "import pathlib, runpy, sys\n"
        "for each in sorted(pathlib.Path(sys.argv[1]).rglob('conftest.py')):\n"
        "    runpy.run_path(str(each))\n"
        "    assert 'triton' not in sys.modules, each\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", code, tests], env=environment, check=True)


def test_a_gpu_is_found_as_it_is_outside():
    asked = PLANTED | {"BT_BENCH_TEST_GPU": "1", "CUDA_INJECTION64_PATH": "/tool.so"}
    kept = settled(asked, "/home/of/tests").items() & asked.items()
    assert {name for name, _ in kept} == {
        *("BT_BENCH_TEST_GPU", "CUDA_INJECTION64_PATH", "CUDA_VISIBLE_DEVICES", "NVTX_DISABLE"),
    }
    assert "TRITON_INTERPRET" not in settled(asked, "/home/of/tests")


def test_this_process_sees_what_was_settled():
    found: dict[str, Any] = {}
    exec(LOOK, found)
    assert is_settled(found["seen"]), found["seen"]
    # As on a CI service, so elsewhere: examples are new ones, and none is too slow.
    assert not settings().derandomize
    assert settings().deadline is None


def test_so_does_a_process_that_a_test_starts():
    done = subprocess.run(
        [sys.executable, "-c", f"{LOOK}print(seen)"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert is_settled(ast.literal_eval(done.stdout)), done.stdout


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("columns", "planted", "options"),
    [
        (60, {"LC_ALL": "C"}, "-n1"),
        (80, {"COLUMNS": "500", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}, "-n0 -s"),
        (120, PLANTED, "-n0"),
        (200, PLANTED | {"COLUMNS": ""}, "-n1"),
    ],
)
def test_tests_pass_in_any_environment(columns, planted, options):
    """In a terminal of this width; with xdist or without; if Python has to start anew, or not."""
    fixed = settled({}, "").keys() - {"PYTHONUSERBASE"}
    inherited = {name: os.environ[name] for name in os.environ.keys() - fixed}
    inherited = {name: v for name, v in inherited.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options.split()]
    code, printed = run_in_terminal(columns, [*command, *SENSITIVE], inherited | planted)
    assert code == 0, printed
    assert "failed" not in printed
