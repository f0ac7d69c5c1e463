"""Python's garbage collector, kept out of what is timed and of what would wait for it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection(*, collect_first: bool = True) -> Iterator[None]:
    """Has nothing collected until the end of the `with`.

    Args:
        collect_first: collect before, so that nothing is left over from what came before.
    """
    if collect_first:
        gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
