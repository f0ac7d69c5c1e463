"""Helpers of tests that run commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from threading import RLock, get_ident
from typing import Any, ClassVar, cast
from unittest.mock import patch

from typer.main import get_command
from typer.testing import CliRunner

from bt_bench.base.processes import pack, unpack
from bt_bench.cli.app import app
from bt_bench.worker.tasks.runner import Finished
from bt_bench.worker.tasks.tasks import CheckConformance
from support.forked import forked_censuses, forked_suites
from support.prepared import words_of
from support.suites import as_sent, suites_here

TINY = """\
variants: [baseline, fused]
operations: [gather_slots, step]
plan: {rounds: 2, warmup_rounds: 0, instances: 1}
defaults: {max_num_reqs: 3, max_num_batched_tokens: 8, max_model_len: 64}
cases:
  - {name: one, requests: 1, tokens: 4}
  - {name: two, groups: 2, requests: 2, tokens: 5, mapping: shuffled}
"""

# As the `prologue` of a command of its own whose test is not about checks: one workload of them.
ONE_CHECK = """\
from bt_bench.suites.block_tables import suite as spec
all_of = spec.conformance_workloads
spec.conformance_workloads = lambda seed: {n: w for n, w in all_of(seed).items() if n == "corners"}
"""


RAISING_VARIANT = '''\
"""A variant that raises when it gathers."""

from bt_kernels.device_tables import DeviceBlockTables


class Variant(DeviceBlockTables):
    def gather_and_compute_slot_mappings(self, *inputs, **options):
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


class _OfThread:
    """A stdout that is stderr for what this thread writes, and as before for other threads."""

    def __init__(self) -> None:
        self._thread, self._others = get_ident(), sys.stdout

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if get_ident() == self._thread else self._others, name)


def _as_in_a_worker() -> AbstractContextManager[Any]:
    return redirect_stdout(cast(Any, _OfThread()))


class InProcess:
    """Stands in for the supervisor: does the worker's work here, where torch is imported already.

    Takes a second or two less than a worker, and takes the tests with it if a variant crashes.
    What shipped variants do on the conformance workloads is found once in a process: they do not
    change in between, and a check takes longer than all else that a command does here.
    """

    _known: ClassVar[dict[tuple[object, ...], Any]] = {}  # outcomes of shipped variants
    _alone: ClassVar[Any] = RLock()  # two workers run at once, and here they share a stdout

    def __init__(self, setup: Any, serve: object, on_traceback: object = None) -> None:
        self._setup = setup
        self._shipped = {a.name for a in setup.arms if a.entry.shipped and a.entry.kernels is None}

    def start(self) -> None:
        """There is nothing to start ahead."""

    def close(self) -> None:
        """There is nothing to kill."""

    def __enter__(self) -> InProcess:
        from bt_bench.worker.process.executor import LocalRunner
        from bt_bench.worker.process.main import set_up

        with _as_in_a_worker(), suites_here():
            self.hello, executor, _ = set_up(as_sent(self._setup))
        self._runner = LocalRunner(executor)
        return self

    def __exit__(self, *error: object) -> None:
        """There is nothing to end."""

    def run(self, task: Any, arms: Any, watcher: Any = None) -> Any:
        with self._alone, _as_in_a_worker(), suites_here():
            task = as_sent(task)
            if isinstance(task, CheckConformance):
                return self._check(task, arms, watcher)
            # As a worker sends it.
            return unpack(pack(self._runner.run(task, arms, watcher)))

    def renew(self) -> None:
        """There is no process but this one."""

    abandon = renew

    calls_made = 0

    def _check(self, task: CheckConformance, arms: list[str], watcher: Any) -> Any:
        """Checks what is not known yet; a failure is never kept."""
        plan = self._setup.plan
        asked = (task, plan.seed, plan.check_rounds, self._setup.device)
        keys = {name: (name, *asked) for name in arms}
        unknown = [n for n in arms if n not in self._shipped or keys[n] not in self._known]
        finished = self._runner.run(task, unknown, watcher)
        for name in self._shipped & set(unknown) - set(finished.failed):
            found = {operation: finished.value[name, operation] for operation in task.operations}
            if all(outcome.reason is None for outcome in found.values()):
                self._known[keys[name]] = found
        known = {
            (name, operation): outcome
            for name in arms
            if name not in unknown
            for operation, outcome in self._known[keys[name]].items()
        }
        return Finished(finished.value | known, finished.failed)


_command = cache(get_command)  # it is the same each time, and making it takes as long as a test


@contextmanager
def without_worker(checks: Sequence[str] | None = ("corners",)) -> Iterator[None]:
    """Lets what needs a worker do its work here.

    Args:
        checks: the conformance workloads of `block_tables` that variants are checked on; `None` for
            all, which take seconds per variant. With `None` that suite is not even imported.
    """
    with (
        forked_suites(),
        forked_censuses(),
        nullcontext() if checks is None else _conformance(checks),
        # Here it would see the threads of other tests, and it waits before and after each task.
        patch("bt_bench.worker.isolation.state_watch.others_are_busy", bool),
        patch("bt_bench.worker.Supervisor", InProcess),
        _modules_read_once(),
    ):
        yield


def _conformance(checks: Sequence[str]) -> AbstractContextManager[object]:
    def workloads(seed: int) -> dict[str, Any]:
        return deepcopy(_some_workloads(seed, *checks))

    return patch("bt_bench.suites.block_tables.suite.conformance_workloads", workloads)


@cache
def _some_workloads(seed: int, *names: str) -> dict[str, Any]:
    """Builds all of them once, which takes a tenth of a second; a command needs them thrice."""
    from bt_bench.suites.block_tables.workloads import conformance_workloads

    found = conformance_workloads(seed)
    return {name: found[name] for name in names}


def _modules_read_once() -> AbstractContextManager[object]:
    """Lets a watch on the modules begin with what the last one read, if that still holds.

    Reading all of them takes a tenth of a second. A worker has one watch; here each command has.
    """
    from bt_bench.worker.isolation.global_state import GlobalState

    return patch.object(GlobalState, "now", partial(_now, GlobalState.now))


_last: list[Any] = []


def _now(now: Callable[..., Any], *ignored: Any, known: Any = None, **options: Any) -> Any:
    state = now(*ignored, known=known or next(iter(_last), None), **options)
    _last[:] = [state]  # another thread may do so at once
    return state


def run(
    *arguments: object, stdin: str | None = None, checks: Sequence[str] | None = ("corners",)
) -> Outcome:
    """Runs a command in this process, without a worker.

    Args:
        arguments: as typed, without `bt-bench`.
        stdin: what the command reads.
        checks: see `without_worker`.
    """
    with without_worker(checks), patch("typer.testing._get_command", _command):
        result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)
    return Outcome(result.exit_code, result.stdout, result.stderr)


def start(
    *arguments: object,
    prologue: str = "",
    environment: dict[str, str] | None = None,
    python: str = sys.executable,
    forked: bool | None = None,
    **kwargs: Any,
) -> subprocess.Popen[str]:
    """Starts a command in a process of its own.

    Args:
        arguments: as typed, without `bt-bench`.
        prologue: Python that runs first.
        environment: variables beside those of this process.
        python: the interpreter.
        forked: whether the process is one of `support.prepared`; by default, if nothing is given
            that a process may look at while it starts or imports.
        kwargs: as of `Popen`.
    """
    code = f"{prologue}\nfrom bt_bench.cli import main\nmain()"
    if forked is None:
        forked = not (
            prologue or environment or python != sys.executable or kwargs.keys() - {"cwd"}
        )
    return subprocess.Popen(
        [*(words_of(code) if forked else [python, "-c", code]), *[str(a) for a in arguments]],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"COLUMNS": "200"} | (environment or {}),
        **kwargs,
    )


def run_apart(
    *arguments: object, prologue: str = "", timeout: float = 900, **kwargs: Any
) -> Outcome:
    """Runs a command in a process of its own, with a worker where it needs one."""
    process = start(*arguments, prologue=prologue, **kwargs)
    out, err = process.communicate(timeout=timeout)
    return Outcome(process.returncode, out, err)
