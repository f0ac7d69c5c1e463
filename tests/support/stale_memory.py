"""A machine whose device does not see pinned memory: kernels get copies of it in the interpreter.

The copies are made when memory is allocated (`STALE`); at its first launch, of which the host sees
what kernels write (`CACHED`); or for each launch, so that kernels read what the host wrote, and
their own writes are lost (`LOST`).
"""

from __future__ import annotations

import torch
from triton.runtime.interpreter import GridExecutor

from bt_kernels.launches import pinned

STALE, CACHED, LOST = MODES = ("stale", "cached", "lost")


class StaleMemory:
    """Stands in for such a machine during a test.

    Args:
        monkeypatch: of the test.
        mode: one of `MODES`.

    Attributes:
        replaced: launches whose arguments were in pinned memory.
    """

    def __init__(self, monkeypatch, mode=STALE):
        self.mode = mode
        self.replaced = 0
        self._memory = []  # pairs of pinned bytes, and the device's copy of them, if there is one
        zeros, launch = torch.zeros, GridExecutor.__call__

        def allocate(*sizes, **options):
            made = zeros(*sizes, **options)
            if "pin_memory" in options:  # nothing can be pinned without a GPU
                as_bytes = made.view(-1).view(torch.uint8)
                self._memory.append([as_bytes, as_bytes.clone() if mode == STALE else None])
            return made

        def launched(executor, *arguments, **options):
            seen = [self._seen(argument) for argument in arguments]
            self.replaced += any(x is not y for x, y in zip(seen, arguments, strict=True))
            before = [copy.clone() for _, copy in self._cached()]
            launch(executor, *seen, **options)
            for (host, copy), was in zip(self._cached(), before, strict=True):
                host[copy != was] = copy[copy != was]

        monkeypatch.setattr(torch, "zeros", allocate)
        monkeypatch.setattr(GridExecutor, "__call__", launched)
        # Found out anew, and forgotten after the test.
        monkeypatch.setattr(pinned, "_OUTCOMES", {})

    def _cached(self):
        return [entry for entry in self._memory if self.mode == CACHED and entry[1] is not None]

    def _seen(self, argument):
        """Return the argument that a kernel gets in place of another."""
        if not isinstance(argument, torch.Tensor):
            return argument
        for entry in self._memory:
            host, copy = entry
            first = argument.data_ptr() - host.data_ptr()
            if not 0 <= first < host.numel():
                continue
            if copy is None:
                copy = host.clone()
                if self.mode == CACHED:
                    entry[1] = copy
            part = copy[first : first + argument.nbytes]
            return part.view(argument.dtype).view(argument.shape)
        return argument
