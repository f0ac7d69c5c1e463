"""Control of Python's garbage collector around code that is timed or must be quick."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection(*, collect_first: bool = True) -> Iterator[None]:
    """Disable the garbage collector for the `with` block.

    Args:
        collect_first: collect once before the block, which removes earlier garbage. A nested block
            does not collect again, since a collection takes milliseconds.
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
