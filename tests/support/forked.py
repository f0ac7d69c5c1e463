"""Processes that are forked from one that has imported what they need, in place of spawned."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any

import pytest

# Before the first one is forked; neither torch nor kernels.
IMPORTED = ["support.fake_rounds", "support.fake_workers", "bt_bench.protocol.hosting"]


class InEnvironment:
    """A main function that runs in the environment of the moment in which it was named."""

    def __init__(self, target: Callable[..., None]) -> None:
        self._target, self._environment = target, dict(os.environ)

    def __call__(self, *args: Any) -> None:
        from bt_bench.base.processes import child

        # Its parent is the process that forks; that one ends with the tests, and the connection,
        # at whose end it ends as well, is closed by then.
        child.end_with_parent = lambda pid: None
        os.environ.clear()
        os.environ.update(self._environment)
        self._target(*args)


class ForkingContext:
    """Stands in for `multiprocessing.get_context("spawn")`: most of a second less per process.

    Args:
        only: names of the processes that are forked; all if there are none.
    """

    def __init__(self, *only: str) -> None:
        self._only = only
        self._spawning: SpawnContext = multiprocessing.get_context("spawn")
        self._forking: ForkServerContext = multiprocessing.get_context("forkserver")
        self._forking.set_forkserver_preload(IMPORTED)
        self.Pipe = self._spawning.Pipe

    def Process(self, *, target: Callable[..., None], args: Sequence[Any], name: str, **more: Any):  # noqa: N802
        if self._only and name not in self._only:
            return self._spawning.Process(target=target, args=args, name=name, **more)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
            forkserver.ensure_running()
        target = InEnvironment(target)
        return self._forking.Process(target=target, args=args, name=name, **more)


@contextmanager
def forked_workers() -> Iterator[None]:
    """Fork workers; only for those that load neither torch nor kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bt_bench.base.processes.child.CONTEXT", ForkingContext())
        yield


@cache
def _for_suites() -> ForkingContext:
    return ForkingContext("bt-bench process of the suite")


@contextmanager
def forked_suites() -> Iterator[None]:
    """Fork the processes of users' suites, unless other processes are being replaced already."""
    from bt_bench.base.processes import child

    if child.CONTEXT is not multiprocessing.get_context("spawn"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "CONTEXT", _for_suites())
        yield
