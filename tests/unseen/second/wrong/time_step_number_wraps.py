"""Counts steps from 1 to 64 and again, though the marks of old steps are never cleared.

It shows when a row that was written 64 steps ago (writes in pinned memory), and otherwise since
then, is in the batch: its mark from that step is taken for one of this step.
"""

from bt_kernels.one_launch import OneLaunch, StepWrites
from bt_kernels.staging import HostRing

LAST_STEP = 64


class ShortNumbers(StepWrites):
    """Never runs out of numbers."""

    def pack(self, staged, view):
        if self.step == LAST_STEP:
            self.step = 0
        return super().pack(staged, view)


class Variant(OneLaunch):
    """As one_launch, for any number of steps."""

    def _make_ring(self, _size, steps_in_flight):
        self._writes = ShortNumbers(self.layout)
        return HostRing(self._writes.room, self.place, in_flight=steps_in_flight)
