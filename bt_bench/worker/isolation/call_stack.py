"""Room for Python's calls, so that what one costs does not depend on how deep it is made."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

# In words of 8 bytes. CPython rounds a chunk up to a power of two, here 8 MiB, and what this frame
# leaves of it, 3.4 MiB, holds the frames of some ten thousand nested calls. Pages that nothing
# touches take no memory.
_FRAME_WORDS = 600_000


def with_room(function: Callable[[], Result]) -> Result:
    """Calls a function where no call below it maps memory for its frame.

    CPython 3.11 to 3.14 keeps the frames of Python functions in chunks of 16 KiB. A call whose
    frame does not fit maps another chunk, and its return unmaps it; late releases of 3.13 and 3.14
    keep it (https://github.com/python/cpython/issues/142183). So a loop at the wrong depth pays
    about 0.9 µs and a page fault for every call, in place of 0.02 µs, and the number of frames that
    the harness has beneath a variant decides whether the calls of the variant do. Below a frame
    that needs a large chunk, no call reaches the end of one.
    """
    return function()


# Free-threaded builds fill the whole frame, and their collector goes through it.
if not sysconfig.get_config_var("Py_GIL_DISABLED"):
    with_room.__code__ = with_room.__code__.replace(co_stacksize=_FRAME_WORDS)
