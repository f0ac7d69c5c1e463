"""The package `vllm` that the runners are imported from, and where it comes from."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from support.vllm_runner import imported_from, write_package


@contextmanager
def engine_package(wheel: Path | None) -> Iterator[Callable[[str], ModuleType]]:
    """Let modules of the package be imported by the last part of their names.

    Args:
        wheel: an unpacked wheel, whose class and text of the runner's methods are used; `None`:
            the stand-ins, written for tests.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        imported_from(write_package(Path(folder), wheel)) as module,
    ):
        yield module
