"""Fault: the host buffers are refilled without waiting for the kernels that read them.

Seen: with a device that is two applies late, an apply writes ids of a later one.

Needs a GPU.
"""

from __future__ import annotations

from bt_kernels.fusions import FusedApply
from bt_kernels.staging import HostRing


class Variant(FusedApply):
    """Two buffers were always enough in our runs."""

    def _make_ring(self, size: int, steps_in_flight: int | None) -> HostRing:
        return super()._make_ring(size, steps_in_flight or 1)
