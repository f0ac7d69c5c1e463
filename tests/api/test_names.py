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


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import bt_bench; dir(bt_bench)", set()),
        # Neither what runs sweeps, which other systems than Linux lack, nor pandas.
        ("import bt_bench; bt_bench.load, bt_bench.compare, bt_bench.sweep", {"torch", "pandas"}),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(code, loaded):
    found = set(python(f"{code}\nimport sys; print(*sys.modules)").split())
    if not loaded:
        assert not found & {*HEAVY, "bt_bench.api", "bt_bench.base"}
    else:
        assert not found & {
            "torch",
            "triton",
            "pandas",
            "typer",
            "bt_bench.runs",
            "bt_bench.worker",
        }


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
    print(error.exit_code)
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

    def errors(name: str) -> list[str]:
        python_of_user = tmp_path / "venv/bin/python"
        command = ["mypy", "--strict", "--no-pretty", "--python-executable", python_of_user, name]
        done = subprocess.run(
            [sys.executable, "-m", *command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        return [line for line in done.stdout.splitlines() if ": error:" in line] or [done.stderr]

    assert errors("user.py") == [""]
    assert [line.rpartition("[")[2] for line in errors("wrong.py")] == [
        "attr-defined]",
        "arg-type]",
        "call-arg]",
        "attr-defined]",
    ]
