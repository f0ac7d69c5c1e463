"""Right: three host buffers in turn, and the staging area in Python."""

from __future__ import annotations

from bt_kernels.staging import (
    HostRing,
)
from bt_kernels.variants.one_launch import Variant as OneLaunchVariant


class Variant(OneLaunchVariant):
    """A longer ring."""

    native = False

    def _make_ring(self, size: int, steps_in_flight: int | None) -> HostRing:
        ring = super()._make_ring(size, steps_in_flight)
        if steps_in_flight is None and not self._on_gpu:
            ring = HostRing(size, self.place, in_flight=2)
        return ring
