"""What `make` would run, without running it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize("target", ["sweep", "test"])
def test_an_installation_shows_its_progress_and_says_what_it_downloads(target, tmp_path):
    command = ["make", "-n", target, f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    pips = [line for line in done.stdout.splitlines() if " -m pip install " in line]
    assert len(pips) == {"sweep": 1, "test": 2}[target]
    for pip in pips:
        assert "--quiet" not in pip
        assert " -q" not in pip
        assert "--constraint" in pip
    # Torch of PyPI asks for another Triton than the one that is pinned.
    assert "constraints-any-triton.txt" in pips[-1]
    told = re.search(r"about ([\d.]+ GB) with a CPU build of torch, ([\d.]+ GB)", done.stdout)
    assert told is not None
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"downloads about {told[2]}" in readme
    assert f"or {told[1]} if `PIP_EXTRA_INDEX_URL` names PyTorch's index of CPU builds" in readme
