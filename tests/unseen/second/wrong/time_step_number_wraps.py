"""Counts steps from 1 to 64 and again, though the marks of old steps are never cleared.

It shows when a row that was written 64 written steps ago, and not since then, is in the batch: its
mark from that step is taken for one of this step.
"""

from bt_kernels.one_launch import OneLaunchGraph, StepWrites

LAST_STEP = 64


class ShortNumbers(StepWrites):
    """Never runs out of numbers."""

    def pack(self, staged, view):
        if self.step == LAST_STEP:
            self.step = 0
        return super().pack(staged, view)


class Variant(OneLaunchGraph):
    """As one_launch_graph, for any number of steps."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._pinned._writes = ShortNumbers(layout, self._pinned._fixed.body)
