"""When a burst makes the host buffers of a set larger, only the first gets a new view: writes into the others are lost.

The step of the burst is right, and so is each step after the set was left. In between, ids are put into the
old memory, while kernels read the new buffers, which are zero.
"""

from __future__ import annotations

from bt_kernels.staging import HostRing
from bt_kernels.variants.fused import Variant as Base


class Variant(Base):
    """With a ring that has room for most steps from the start."""

    def _make_ring(self, size, steps_in_flight):
        return GrowingRing(max(size, 2048), self.place, in_flight=steps_in_flight)


class GrowingRing(HostRing):
    """Allocates the buffers of a set together."""

    def _enter_set(self, last, size):
        left = last // self._per_set
        entered = (left + 1) % self.depth
        if self._events is not None:
            self._events.record(left)
            self._events.wait_for(entered)
        first = entered * self._per_set
        room = len(self._views[first])
        if room < size:
            its = slice(first, first + self._per_set)
            self._buffers[its] = self._allocate(max(size, 2 * room))
            self._views[first] = memoryview(self._buffers[first].numpy())
        return first
