"""Keeps Python's garbage collector out of what is timed or must be quick."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection(*, collect_first: bool = True) -> Iterator[None]:
    """Turns collection off for the `with` block.

    Args:
        collect_first: collect before the block, so that no earlier garbage is left. Within another
            such block nothing is collected again, since that takes milliseconds.
    """
    was_enabled = gc.isenabled()
    if collect_first and was_enabled:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
