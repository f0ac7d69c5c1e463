"""Headers of a replayed step hold addresses in units of 16 bytes.

An input that begins in between, such as a slice, is read from before its begin.
"""

from __future__ import annotations

from bt_kernels.one_launch import FixedLaunch
from bt_kernels.variants.one_launch_graph import Variant as OneLaunchGraph


def kept(tensor):
    """The tensor at the address that is left of its own."""
    lost = tensor.data_ptr() % 16 // tensor.itemsize
    return tensor.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset() - lost)


class Launch(FixedLaunch):
    """Writes short addresses."""

    def write(self, view, tables, step, num_records, batch, *arguments):
        batch = tuple(map(kept, batch))
        super().write(view, tables, step, num_records, batch, *arguments)


class Variant(OneLaunchGraph):
    """Has its own launch."""

    def _make_ring(self, size, steps_in_flight):
        ring = super()._make_ring(size, steps_in_flight)
        self._fixed = Launch(self, self._launcher)
        return ring
