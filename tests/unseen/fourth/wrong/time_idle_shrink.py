"""After 32 applies with nothing staged the host buffers shrink, but their noted room does not.

A burst of ids that needs more than the first buffers, 32 idle steps, and another such burst: the second
is taken to fit, and the buffer has no room for it.
"""

from __future__ import annotations

import torch

from bt_kernels.staging import HostRing
from bt_kernels.variants.fused_apply import Variant as Base


IDLE = 32


class Variant(Base):
    """Gives memory of bursts back."""

    def _make_ring(self, size, steps_in_flight):
        return ShrinkingRing(size, self.place, in_flight=steps_in_flight)

    def apply_staged_writes(self):
        if not self._staged:
            self._ring.note_idle()
        super().apply_staged_writes()


class ShrinkingRing(HostRing):
    """All buffers grow at once, and shrink when nothing was written for long."""

    def __init__(self, size, place, **options):
        size = max(size, 256)
        super().__init__(size, place, **options)
        self._first_size, self._room, self._idle = size, size, 0

    def advance(self, size):
        self._idle = 0
        if size > self._room:
            self._resize(size)
            self._room = size
        return super().advance(0)

    def note_idle(self):
        self._idle += 1
        if self._idle == IDLE and self._room > self._first_size:
            self._resize(self._first_size)

    def _resize(self, size):
        if self._on_gpu:
            torch.cuda.synchronize(self._device)
        self._buffers = [buffer for _ in range(self.depth) for buffer in self._allocate(size)]
        self._views = [memoryview(buffer.numpy()) for buffer in self._buffers]
