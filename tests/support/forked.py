"""Workers that are forked from a process that has imported what they need, in place of spawned."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver

import pytest


@contextmanager
def forked_workers(*modules: str) -> Iterator[None]:
    """Saves most of a second for each worker; only for those that load neither torch nor kernels.

    Args:
        modules: imported before the first worker is forked.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()
        patch.setattr("bt_bench.worker.supervisor.CONTEXT", context)
        yield
