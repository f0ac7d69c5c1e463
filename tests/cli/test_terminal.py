"""The size of the terminal, as it is and as the environment has it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from support.commands import run_apart
from support.committed import ORIGIN
from support.terminals import run_in_terminal

from bt_bench.cli.terminal import heed_only_sane_sizes

SIZES = ("COLUMNS", "TERMINAL_WIDTH", "LINES")
COMPARE = ("compare", str(ORIGIN / "baseline.json.xz"), str(ORIGIN / "fused.json.xz"))


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        *((size, ()) for size in ("", "0", "1", "-80", "80.5", "²", "wide", "10000", "9" * 5000)),
        ("19", ("LINES",)),
        *((size, SIZES) for size in ("20", "80", "500", "9999")),
    ],
)
def test_a_size_counts_if_some_terminal_has_it(monkeypatch, size, kept):
    for name in SIZES:
        monkeypatch.setenv(name, size)
    heed_only_sane_sizes()
    assert {name: os.environ[name] for name in SIZES if name in os.environ} == dict.fromkeys(
        kept, size
    )


@pytest.mark.parametrize(
    "arguments",
    [COMPARE, ("show", str(ORIGIN)), ("check", "--help"), ("check", "--no-such-option")],
    ids=["compare", "show", "help", "error"],
)
def test_what_is_printed_does_not_depend_on_other_sizes(arguments):
    def printed(**environment):
        # Nothing of the sizes is read where forked commands are prepared.
        return run_apart(*arguments, environment=environment, stdin=subprocess.DEVNULL, forked=True)

    expected = printed(COLUMNS="80")
    assert expected.out + expected.err
    assert printed(COLUMNS="0", LINES="0", TERMINAL_WIDTH="²") == expected


@pytest.mark.parametrize("columns", [60, 200])
def test_tables_have_the_width_of_the_terminal(columns):
    environment = {k: v for k, v in os.environ.items() if k not in SIZES} | {"COLUMNS": "0"}
    command = [sys.executable, "-m", "bt_bench", *COMPARE, "--all"]
    _, printed = run_in_terminal(columns, command, environment)
    widest = max(map(len, re.sub(r"\x1b\[[\d;]*m", "", printed).splitlines()))
    assert columns - 10 < widest <= columns


def test_a_log_of_github_is_no_terminal():
    outcome = run_apart("list", "--help", environment={"GITHUB_ACTIONS": "true"})
    assert "--kernels" in outcome.out
    assert "\x1b" not in outcome.out
