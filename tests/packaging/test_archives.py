"""The packages as an archive on `sys.path`: results are read, and what cannot be is named."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "bt.zip"
    with zipfile.ZipFile(path, "w") as file:
        for top in (ROOT / "bt_bench", ROOT / "kernels" / "bt_kernels"):
            for source in top.rglob("*"):
                if source.suffix in (".py", ".json"):
                    file.write(source, source.relative_to(top.parent))
    return path


def called(archive, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import bt_bench.cli as c; c.main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=archive.parent,
    )


@pytest.mark.parametrize("arguments", [("list",), ("sweep", "quick")])
def test_configs_and_kernels_are_files(archive, arguments):
    done = called(archive, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"cannot be read: {archive} is an archive; install what it holds with pip" in done.stderr


def test_results_are_read(archive):
    done = called(archive, "compare", str(ROOT / "reports/h100/origin"), "--fail-on", "none")
    assert done.returncode == 0, done.stderr
