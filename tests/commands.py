"""Helpers of tests that run commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner

from bt_bench.cli.app import app

TINY = """\
variants: [baseline, fused]
operations: [gather_slots, step]
plan: {rounds: 2, warmup_rounds: 0, instances: 1}
defaults: {max_num_reqs: 4, max_num_batched_tokens: 16, max_model_len: 64}
cases:
  - {name: one, requests: 2, tokens: 4}
  - {name: two, groups: 2, requests: 3, tokens: 9, mapping: shuffled}
"""

RAISING_VARIANT = '''\
"""A variant that raises when it gathers."""

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    def gather_block_tables(self, idx_mapping, num_reqs_padded):
        raise RuntimeError("no gather today")
'''


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class InProcess:
    """Stands in for the supervisor: does the worker's work here, where torch is imported already.

    Takes a second or two less than a worker, and takes the tests with it if a variant crashes.
    """

    def __init__(self, setup: Any, serve: object) -> None:
        self._setup = setup

    def __enter__(self) -> InProcess:
        from bt_bench.executor import LocalRunner
        from bt_bench.worker import set_up

        with redirect_stdout(sys.stderr):
            self.hello, executor = set_up(self._setup)
        self._runner = LocalRunner(executor)
        return self

    def __exit__(self, *error: object) -> None:
        """There is nothing to end."""

    def run(self, task: Any, arms: Any, watcher: Any = None) -> Any:
        with redirect_stdout(sys.stderr):
            return self._runner.run(task, arms, watcher)


def run(*arguments: object, stdin: str | None = None) -> Outcome:
    """Runs a command in this process, without a worker."""
    with patch("bt_bench.supervisor.Supervisor", InProcess):
        result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)
    return Outcome(result.exit_code, result.stdout, result.stderr)


def start(*arguments: object, prologue: str = "", **kwargs: Any) -> subprocess.Popen[str]:
    """Starts a command in a process of its own; `prologue` is Python that runs first."""
    code = f"{prologue}\nfrom bt_bench.cli import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *[str(a) for a in arguments]],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"COLUMNS": "200"},
        **kwargs,
    )


def run_apart(
    *arguments: object, prologue: str = "", timeout: float = 120, **kwargs: Any
) -> Outcome:
    """Runs a command in a process of its own, with a worker where it needs one."""
    process = start(*arguments, prologue=prologue, **kwargs)
    out, err = process.communicate(timeout=timeout)
    return Outcome(process.returncode, out, err)
