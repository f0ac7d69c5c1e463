"""Workers that are forked from a process that has imported what they need, in place of spawned."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver

import pytest

IMPORTED = ["support.fake_rounds", "support.fake_workers"]  # before the first worker is forked


@contextmanager
def forked_workers() -> Iterator[None]:
    """Saves most of a second per worker; only for those that load neither torch nor kernels."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()
        patch.setattr("bt_bench.processes.child.CONTEXT", context)
        yield
