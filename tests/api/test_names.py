"""The names that `bt_bench` exports: when they are imported, and what type checkers know."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import bt_bench

ROOT = Path(__file__).parents[2]
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


USER = """\
from pathlib import Path

import numpy as np

import bt_bench
from bt_bench.errors import ExitCode, NotComparableError, UsageError


def slower(path: Path) -> list[str]:
    comparison = bt_bench.compare(path, "other", threshold=3.0, floor={"registers": 8})
    if comparison.exit_code is ExitCode.OK:
        return []
    return [each.case for each in comparison.verdicts if each.verdict is bt_bench.Verdict.SLOWER]


def total(run: bt_bench.Run, case: str) -> float:
    samples: bt_bench.Samples = run.case(case, variant="mine").samples["host_us"]
    return float(np.asarray(samples).sum()) + float(samples.values.sum()) + samples.median


try:
    run = bt_bench.sweep({"cases": []}, set={"seed": [1, 2]}, k="a*", out=Path("x"), progress=print)
    print(run.environment.device, run.to_pandas(), bt_bench.compare(run).to_pandas())
except (UsageError, NotComparableError) as error:
    print(error.exit_code, bt_bench.errors.ExitCode.USAGE)
"""
WRONG = """\
import bt_bench

bt_bench.lod("x")
bt_bench.load(1)
bt_bench.compare("x", treshold=3)
bt_bench.load("x").verdicts[0].ratoi
"""


def test_code_of_users_passes_strict_type_checks(tmp_path):
    """As where bt-bench is installed: mypy reads only packages with `py.typed` there."""
    assert (ROOT / "bt_bench/py.typed").is_file()
    venv.create(tmp_path / "venv")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "both.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(WRONG)
    python_of_user = tmp_path / "venv/bin/python"
    command = ["--strict", "--no-pretty", "--python-executable", python_of_user]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *command, "user.py", "wrong.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert "(checked 2 source files)" in done.stdout, done
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [error.partition(":")[0] for error in errors] == ["wrong.py"] * 4, errors
    kinds = [error.rpartition("[")[2] for error in errors]
    assert kinds == ["attr-defined]", "arg-type]", "call-arg]", "attr-defined]"]
