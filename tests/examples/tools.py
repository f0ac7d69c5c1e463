"""Runs commands on the suites of examples, in this process or in one of its own."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from examples.wrong_variants import SUITE
from support.commands import InProcess, Outcome
from support.forked import forked_suites
from typer.testing import CliRunner

from bt_bench.cli.app import app


def bench(*arguments: object, suite: Path | None = SUITE) -> Outcome:
    """Runs a command in this process, with all conformance workloads of the suite.

    Args:
        arguments: as typed, without `bt-bench` and without `--suite`.
        suite: the folder; `None`: the command has no such option, or names it itself.
    """
    words = [*arguments, *([] if suite is None else ["--suite", suite])]
    with forked_suites(), patch("bt_bench.worker.Supervisor", InProcess):
        result = CliRunner().invoke(app, [str(word) for word in words])
    return Outcome(result.exit_code, result.stdout, result.stderr)
