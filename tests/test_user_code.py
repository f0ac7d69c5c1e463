"""The types of both packages, as `mypy --strict` shows them to code of a user."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "tests" / "user_code"
FILES = ("engine.py", "harness.py", "mistakes.py")
ERROR = re.compile(r"^mistakes\.py:(\d+): error: ", re.MULTILINE)


@pytest.fixture(scope="module")
def output(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says of `user_code`, with both packages installed like any other."""
    pytest.importorskip("mypy", reason="mypy comes with the extra `dev`")
    # Kept from run to run: reading torch takes 10 s or more. `-p no:cacheprovider` has no cache.
    kept = getattr(request.config, "cache", None)
    cache = (kept.mkdir if kept else tmp_path_factory.mktemp)("mypy_of_user_code")
    options = ("--strict", "--config-file=", f"--cache-dir={cache}")
    # Only its folder counts as the user's own code. Packages on the path need a `py.typed`.
    path = os.pathsep.join(map(str, (ROOT, ROOT / "kernels", os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, "-m", "mypy", *options, *FILES],
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def test_right_code_passes(output: str) -> None:
    assert re.search(
        r"^Found \d+ errors in 1 file \(checked 3 source files\)$", output, re.MULTILINE
    )
    assert "engine.py" not in output
    assert "harness.py" not in output


def test_each_mistake_is_found(output: str) -> None:
    lines = (HERE / "mistakes.py").read_text(encoding="utf-8").splitlines()
    mistakes = {number for number, line in enumerate(lines, start=1) if "# mistake" in line}
    assert len(mistakes) > 50
    assert {int(number) for number in ERROR.findall(output)} == mistakes


@pytest.mark.parametrize("file", ["engine.py", "harness.py"])
def test_right_code_runs(file: str) -> None:
    runpy.run_path(str(HERE / file), run_name="__main__")


@pytest.mark.parametrize("package", ["bt_bench", "kernels/bt_kernels"])
def test_packages_say_that_they_have_types(package: str) -> None:
    assert (ROOT / package / "py.typed").read_bytes() == b""
