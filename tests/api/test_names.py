"""The names that `bt_bench` exports: when they are imported, and what type checkers know."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bt_bench

HEAVY = ("numpy", "pandas", "pydantic", "rich", "torch", "triton", "typer")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(code: str) -> set[str]:
    return set(python(f"{code}\nimport sys; print(*sys.modules)").split())


def test_nothing_heavy_is_imported_before_a_name_is_used():
    assert not loaded("import bt_bench; dir(bt_bench)") & {*HEAVY, "bt_bench.base"}


def test_reading_needs_neither_torch_nor_what_runs_sweeps():
    found = loaded("from bt_bench import compare, load, sweep")
    assert "numpy" in found
    assert not found & {"pandas", "torch", "triton", "typer", "bt_bench.runs", "bt_bench.worker"}


def test_errors_need_no_import_of_their_own():
    assert python("import bt_bench; print(bt_bench.errors.UsageError.exit_code)") == "2\n"


def test_the_import_takes_less_than_50_ms():
    code = "import time; t = time.process_time(); import bt_bench; print(time.process_time() - t)"
    assert min(float(python(code)) for _ in range(3)) < 0.05


def test_all_names_are_there():
    for names in bt_bench._ROOMS.values():
        for name in names:
            assert getattr(bt_bench, name).__doc__
            assert name in dir(bt_bench)
    with pytest.raises(AttributeError, match="module 'bt_bench' has no attribute 'lod'"):
        bt_bench.lod  # type: ignore[attr-defined] # noqa: B018
