"""The environment of tests, and of all that they start: the same wherever they run.

Of what pytest was started with, tests get only what is needed to find programs, libraries and
devices. All else could change what they print or do: the width and colours of a terminal, a
language, a time zone, the settings of git, the variables of a CI service, of make or of Python. A
test about any of these sets it itself.
"""

from __future__ import annotations

import contextlib
import locale
import os
import shutil
import site
import sys
import tempfile
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_KEPT = (
    *("PATH", "TMPDIR", "USER", "LOGNAME"),
    # Compilers and libraries.
    *("CC", "CPATH", "*_INCLUDE_PATH", "LIBRARY_PATH", "LD_*", "NIX_*"),
    # Packages of Python.
    *("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"),
    # Pytest, tools that measure coverage, and what is asked of the tests.
    *("PYTEST_*", "COV_*", "COVERAGE_*", "UPDATE_GOLDENS", "BT_BENCH_TEST_GPU"),
)
# Drivers are found by them, and tools such as compute-sanitizer inject themselves by them.
_KEPT_ON_GPU = (
    *("CUDA*", "NV*", "*INJECTION*", "PYTORCH*"),
    *("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_*_PATH"),
)

_SETTLED = "TEST_HOME"
"""Set where the environment was settled, for pytest's workers inherit it."""

_ENCODING = {"LC_ALL": "C.UTF-8"}

# Of Python's own variables, those that change nothing in a process that has started.
_PAST = ("PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONUTF8")

_GIT = f"[user]\n\tname = test\n\temail = test@localhost\n[safe]\n\tdirectory = {ROOT}\n"


def on_gpu(environment: Mapping[str, str]) -> bool:
    """Tell whether the tests that need a GPU were asked for."""
    return environment.get("BT_BENCH_TEST_GPU") == "1"


def settled(outer: Mapping[str, str], home: str) -> dict[str, str]:
    """Return the environment of tests.

    Args:
        outer: the environment that pytest was started with.
        home: a home directory of the tests' own.
    """
    patterns = (*_KEPT, *(_KEPT_ON_GPU if on_gpu(outer) else ()))
    kept = {
        name: value
        for name, value in outer.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    # Pytest shortens what failed unless one of the two is set.
    on_ci = outer.get("BUILD_NUMBER") or outer.get("CI")
    fixed = {
        **_ENCODING,
        "HOME": home,
        _SETTLED: home,
        "PYTHONUSERBASE": site.getuserbase(),  # else it would be looked for in that home
        "GIT_CONFIG_NOSYSTEM": "1",
        "COLUMNS": "80",
        "LINES": "25",
        "TERM": "xterm",
        "TZ": "UTC",
        # Tables of tests are small, and threads of torch would spin on cores that others use.
        "OMP_NUM_THREADS": "1",
        # Exploring takes as long as it is given; tests of it say how long.
        "BT_BENCH_EXPLORE": "0",
        # For tests of vLLM's own block tables alone; other tests are to find none.
        "TEST_VLLM_SOURCE": outer.get("TEST_VLLM_SOURCE") or outer.get("BT_BENCH_VLLM_SOURCE", ""),
        "TEST_VLLM_SDIST": outer.get("TEST_VLLM_SDIST") or outer.get("BT_BENCH_VLLM_SDIST", ""),
        "TEST_VLLM_RELEASES": outer.get("TEST_VLLM_RELEASES")
        or outer.get("BT_BENCH_VLLM_RELEASES", ""),
        # For tests of pages, which look for it only there.
        "TEST_CHROMIUM": outer.get("TEST_CHROMIUM") or outer.get("BT_BENCH_CHROMIUM", ""),
        **({"BUILD_NUMBER": on_ci} if on_ci else {}),
        **({} if on_gpu(outer) else {"TRITON_INTERPRET": "1"}),
    }
    return kept | fixed


def settle(config: pytest.Config) -> None:
    """Give this process the environment of tests."""
    outer = dict(os.environ)
    _start_anew_if_too_late(outer)
    home = outer.get(_SETTLED) or _new_home(config, outer)
    wanted = settled(outer, home)
    for name in outer.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)
    time.tzset()


def _start_anew_if_too_late(outer: Mapping[str, str]) -> None:
    """Replace this process if it is what it should not have inherited has made of it.

    Python looks at some variables, and for the encoding of file names, only when it starts.
    """
    lost = {name for name in outer if name.startswith("PYTHON")} - settled(outer, "").keys()
    encodings = {sys.getfilesystemencoding().lower(), locale.getpreferredencoding(False).lower()}
    wanted = {name: value for name, value in outer.items() if name not in lost} | _ENCODING
    if (encodings != {"utf-8"} or lost - set(_PAST)) and wanted != outer:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], wanted)


def _new_home(config: pytest.Config, outer: Mapping[str, str]) -> str:
    """Make a home directory of the tests' own, which is gone when they are over."""
    home = Path(tempfile.mkdtemp(prefix="bt-bench-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    (home / ".gitconfig").write_text(_GIT, encoding="utf-8")
    for name in (".triton", ".nv") if on_gpu(outer) else ():
        before = Path(outer.get("HOME", "/")) / name
        with contextlib.suppress(OSError):  # or kernels are compiled anew in each run
            before.mkdir(exist_ok=True)
            (home / name).symlink_to(before)
    return str(home)
