"""Room for the frames of Python calls, which makes a call's cost independent of its depth."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

# In words of 8 bytes. CPython rounds a chunk up to a power of two, here 8 MiB. This frame leaves
# 3.4 MiB of it, which holds the frames of some ten thousand nested calls. Pages that are never
# touched take no memory.
_FRAME_WORDS = 600_000


def with_room(function: Callable[[], Result]) -> Result:
    """Call a function, with room for the frames of all calls that it makes.

    CPython 3.11 to 3.14 keeps the frames of Python functions in chunks of 16 KiB. A call whose
    frame does not fit maps another chunk, and its return unmaps it; late releases of 3.13 and 3.14
    keep it (https://github.com/python/cpython/issues/142183). A loop at the wrong depth therefore
    pays about 0.9 µs and a page fault for every call, instead of 0.02 µs. The number of the
    harness's own frames decides whether a variant's calls are at that depth. The large frame of
    this function needs a chunk of 8 MiB, and no call below it reaches the chunk's end.
    """
    return function()


# Not in free-threaded builds: they fill the whole frame, and their collector traverses it.
if not sysconfig.get_config_var("Py_GIL_DISABLED"):
    with_room.__code__ = with_room.__code__.replace(co_stacksize=_FRAME_WORDS)
