"""Variants written by people who had not read the checker: wrong ones are found, right ones pass.

`first/` was written before variants were explored. Each wrong one says in its docstring what is
wrong and how it shows; `first/demos.py` shows that it does. `first/found.json` has the scenario
that finds each, so that not all before it have to be played; `python benchmarks/unseen.py` writes
it anew when scenarios have changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FIRST = Path(__file__).parent / "first"
FOUND: dict[str, str | None] = json.loads((FIRST / "found.json").read_text(encoding="utf-8"))
WRONG = sorted(path.stem for path in (FIRST / "wrong").glob("*.py"))
RIGHT = sorted(path.stem for path in (FIRST / "right").glob("*.py"))
SURVIVE = {name for name, number in FOUND.items() if number is None}
LEAST = 0.9  # of the wrong ones are found

pytestmark = pytest.mark.slow


def check(folder: Path, name: str, scenarios: str) -> subprocess.CompletedProcess[str]:
    options = ("--kernels", str(folder), "--variants", name, "--scenario", scenarios)
    return subprocess.run(
        [sys.executable, "-m", "bt_bench", "check", "quick", *options],
        capture_output=True,
        text=True,
        check=False,
    )


def test_found_is_of_these_variants() -> None:
    assert sorted(FOUND) == WRONG
    assert len(WRONG) - len(SURVIVE) >= LEAST * len(WRONG)


@pytest.mark.parametrize("name", sorted(set(FOUND) - SURVIVE))
def test_wrong_variants_are_found(name: str) -> None:
    outcome = check(FIRST / "wrong", name, FOUND[name] or "")
    assert outcome.returncode == 5, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("name", RIGHT)
def test_right_variants_pass(name: str) -> None:
    outcome = check(FIRST / "right", name, "0-59")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
