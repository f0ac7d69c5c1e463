"""Headers of a replayed step hold addresses in units of 16 bytes.

An input that begins in between, such as a slice, is read from before its begin.
"""

from __future__ import annotations

from dataclasses import replace

from bt_kernels.one_launch import FixedLaunch
from bt_kernels.variants.one_launch_graph import Variant as OneLaunchGraph

INPUTS = ("idx_mapping", "query_start_loc", "positions")


def kept(tensor):
    """The tensor at the address that is left of its own."""
    lost = tensor.data_ptr() % 16 // tensor.itemsize
    return tensor.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset() - lost)


class Launch(FixedLaunch):
    """Writes short addresses."""

    def write(self, view, tables, step, num_records, batch, *arguments):
        batch = replace(batch, **{name: kept(getattr(batch, name)) for name in INPUTS})
        super().write(view, tables, step, num_records, batch, *arguments)


class Variant(OneLaunchGraph):
    """Has its own launch."""

    def __init__(self, layout, device, **options):
        super().__init__(layout, device, **options)
        self._pinned._fixed = Launch(self, self.place.launcher)
