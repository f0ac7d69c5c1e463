"""Help and lists say the same where Python has dropped all docstrings."""

from __future__ import annotations

import subprocess
import sys

import pytest

FUNCTIONS = '''\
"""Sums of a row."""

import bt_bench


@bt_bench.benchmark(inputs={"n": [4]})
def total(n):
    """Sums all numbers."""
    return {"x": list(range(n))}


@total.reference
def by_hand(x):
    """One after another."""
    return sum(x)
'''


def printed(folder, *arguments: str, options: tuple[str, ...] = ()) -> str:
    command = [sys.executable, *options, "-m", "bt_bench", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("list", "--suite", "sums.py")],
    ids=" ".join,
)
def test_texts_do_not_need_docstrings(tmp_path, arguments):
    (tmp_path / "sums.py").write_text(FUNCTIONS)
    assert printed(tmp_path, *arguments, options=("-OO",)) == printed(tmp_path, *arguments)
