"""The Triton code that finds out whether a device sees pinned host memory."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["number"])
def probe_kernel(pinned, seen, number):
    """Copy the first word of `pinned` to `seen`, and write `number` to its second; grid `(1,)`."""
    tl.store(seen, tl.load(pinned))
    tl.store(pinned + 1, number)
